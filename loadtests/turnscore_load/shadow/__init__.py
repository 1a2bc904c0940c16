"""What a shadow version costs callers, beside a service without one."""
