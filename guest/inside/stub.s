// Empty: lets Go declare functions whose bodies are linked by name.
