"""Global vectors (GloVe) of Pennington et al. (2014)."""
