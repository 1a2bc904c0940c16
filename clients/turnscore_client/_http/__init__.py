"""HTTP and WebSockets: what is sent, and what comes back."""
