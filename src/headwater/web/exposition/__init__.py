"""What `/metrics` says, a module for each thing that it is about; `headwater.web.metrics` puts it together."""
