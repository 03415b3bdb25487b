"""What people look at: equations, diagrams, tables, figures, pages."""
