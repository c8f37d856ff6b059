// Package sandbox chooses an engine and checks what is asked of one; the
// engines themselves are below it, one package each.
//
// What Check promises an engine: every path is absolute, clean, free of links
// and there; ids and environment cannot be mistaken for anything else; limits
// are set. It looks at the disk once. What changes afterwards, the engine must
// stand: it opens paths without following links.
package sandbox
