package declared

import "slices"

// Argv is the program with its arguments, for the values that there are: an
// argument of which one is lacking is left out, and with it those of its group.
func (v Verb) Argv(values map[string]string) ([]string, error) {
	lacks := func(t Template) bool {
		return slices.ContainsFunc(t.Fields(), func(name string) bool { _, is := values[name]; return !is })
	}
	out := map[int]bool{} // groups that are left out
	for _, t := range v.Run {
		if t.group > 0 && lacks(t) {
			out[t.group] = true
		}
	}
	var argv []string
	for _, t := range v.Run {
		if lacks(t) || out[t.group] {
			continue
		}
		arg, err := t.Fill(values)
		if err != nil {
			return nil, err
		}
		argv = append(argv, arg)
	}
	return argv, nil
}

// MayLack tells whether a value of that name may be lacking: an optional field
// that nothing stands for, or the task.
func (v Verb) MayLack(name string) bool {
	if name == SceneTask {
		return true
	}
	i := slices.IndexFunc(v.Input, func(f Field) bool { return f.Name == name })
	return i >= 0 && v.Input[i].mayLack()
}
