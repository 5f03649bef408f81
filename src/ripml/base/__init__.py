"""What every layer stands on: errors, parallel work, the workspace of large arrays, products, model folders."""
