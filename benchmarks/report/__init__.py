"""Pages and figures about benchmark records."""
