"""The report: one self-contained HTML page, drawn from small files of other stages."""
