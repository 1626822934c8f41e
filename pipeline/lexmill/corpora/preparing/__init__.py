"""From fetched files to clean, split records: readers, filters, duplicates, splits."""
