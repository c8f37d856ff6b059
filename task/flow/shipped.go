package flow

import (
	"embed"
	"io/fs"

	"github.com/caisson-run/caisson"
)

//go:embed shipped/*.yaml
var shipped embed.FS

// Shipped returns the workflows that every Caisson has: bugfix, feature, review.
func Shipped() ([]Workflow, error) {
	files, err := fs.Glob(shipped, "shipped/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Workflow
	for _, file := range files {
		raw, err := shipped.ReadFile(file)
		if err != nil {
			return nil, err
		}
		w, err := Load(file, raw)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// For is the name of a task's workflow: the one it names, or that of its type.
func For(t caisson.Task) string {
	switch {
	case t.Workflow != "":
		return t.Workflow
	case t.Type == caisson.TaskBugfix:
		return "bugfix"
	default:
		return "feature"
	}
}
