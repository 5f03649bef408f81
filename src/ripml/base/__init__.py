"""The lowest layer: errors, parallel work, workspace, arrays, products, figures, the registry, model folders."""
