"""The report: one self-contained HTML page, drawn from small files that other stages left."""
