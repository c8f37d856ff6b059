// Functions of the runtime are linked by name, which needs an assembly file.
