"""What tables, figures and pages share."""
