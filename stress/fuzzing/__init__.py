"""Coverage-guided fuzzing of readers: damaged files that reach new code are damaged further."""
