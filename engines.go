package caisson

import "slices"

// engineSystem says on which operating systems an engine can be, as Go names
// them. Windows means WSL2, where the engine is outside of it.
type engineSystem struct {
	name    string
	systems []string
}

func engineSystems() []engineSystem {
	linux, darwin, windows := "linux", "darwin", "windows"
	return []engineSystem{
		{"namespace", []string{linux}},
		{"bubblewrap", []string{linux}},
		{"docker", []string{linux, darwin, windows}},
		{"podman", []string{linux, darwin, windows}},
		{"colima", []string{linux, darwin}},
		{"orbstack", []string{darwin}},
		{"docker-desktop", []string{linux, darwin, windows}},
		{"landlock", []string{linux}},
	}
}

// EngineNames returns the names of the engines that there are for an operating
// system, as Go names it; of all for an empty name.
func EngineNames(system string) []string {
	var names []string
	for _, e := range engineSystems() {
		if system == "" || slices.Contains(e.systems, system) {
			names = append(names, e.name)
		}
	}
	return names
}
