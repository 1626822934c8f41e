"""The independently recurrent network of Li et al. (2018)."""
