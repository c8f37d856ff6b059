package config

import (
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/internal/strictyaml"
	"github.com/caisson-run/caisson/verb/declared"
)

func readVerbField(name string, v strictyaml.Value) (declared.Field, error) {
	out := declared.Field{Name: name, Type: declared.String, Max: declared.MostText}
	if !v.IsMap() {
		err := readVerbType(v, &out)
		return out, err
	}
	fields, err := v.Fields("type", "description", "optional", "default", "min", "max", "enum", "pattern")
	if err != nil {
		return out, err
	}
	at := map[string]strictyaml.Value{}
	for _, f := range fields {
		if at[f.Name] = f.Value; f.Name == "type" { // the others are read by it
			if err := readVerbType(f.Value, &out); err != nil {
				return out, err
			}
		}
	}
	for _, f := range fields {
		if err := readVerbKey(f, &out); err != nil {
			return out, err
		}
	}
	if out.Least != nil && out.Most != nil && *out.Least > *out.Most {
		return out, at["min"].Errorf("is above max")
	}
	if err := readVerbDefault(at["default"], &out); err != nil {
		return out, err
	}
	if given, is := at["optional"]; is && !out.Optional && out.Default != nil {
		return out, given.Errorf("a field with a default need not be given")
	}
	return out, nil
}

// readVerbKey reads what a field's type has a meaning for, and refuses the rest:
// a bound that bounds nothing would be believed.
func readVerbKey(f strictyaml.Field, out *declared.Field) (err error) {
	isText, isInteger := out.Type == declared.String, out.Type == declared.Integer
	switch f.Name {
	case "description":
		out.Description, err = f.Value.String()
	case "optional":
		out.Optional, err = f.Value.Bool()
	case "max":
		switch {
		case isText:
			err = within(f.Value, countOf, &out.Max, 1, caisson.ControlBody, "1 to 65536 characters")
		case isInteger:
			out.Most, err = boundOf(f.Value)
		default:
			err = f.Value.Errorf("is for texts and integers")
		}
	case "min":
		if !isInteger {
			return f.Value.Errorf("is for integers")
		}
		out.Least, err = boundOf(f.Value)
	case "enum":
		if !isText {
			return f.Value.Errorf("is for texts")
		}
		out.Enum, err = listOf(f.Value, func(item strictyaml.Value, text string) error {
			if utf8.RuneCountInString(text) > declared.MostText {
				return item.Errorf("is longer than %d characters", declared.MostText)
			}
			return nil
		})
		if err == nil && len(out.Enum) == 0 {
			err = f.Value.Errorf("an empty list: nothing could be given")
		}
	case "pattern":
		if !isText {
			return f.Value.Errorf("is for texts")
		}
		if out.Pattern, err = f.Value.String(); err == nil {
			if bad := declared.CheckPattern(out.Pattern); bad != nil {
				err = f.Value.Errorf("%q is not a pattern: %v", out.Pattern, bad)
			}
		}
	}
	return err
}

func boundOf(v strictyaml.Value) (*int64, error) {
	n, err := v.Int()
	if err == nil && (n < -declared.MostInteger || n > declared.MostInteger) {
		err = v.Errorf("is out of range: %d to %d", -declared.MostInteger, declared.MostInteger)
	}
	return &n, err
}

// readVerbDefault reads what stands for a field that is not given: it is what a
// request could have given.
func readVerbDefault(v strictyaml.Value, out *declared.Field) error {
	if v == (strictyaml.Value{}) {
		return nil
	}
	switch out.Type {
	case declared.String:
		text, err := v.String()
		if err != nil {
			return err
		}
		switch {
		case int64(utf8.RuneCountInString(text)) > out.Max:
			return v.Errorf("is longer than max")
		case len(out.Enum) > 0 && !slices.Contains(out.Enum, text):
			return v.Errorf("is not in enum")
		case out.Pattern != "" && !regexp.MustCompile("^(?:"+out.Pattern+")$").MatchString(text):
			return v.Errorf("does not fit pattern")
		}
		out.Default = text
	case declared.Integer:
		n, err := boundOf(v)
		if err != nil {
			return err
		}
		if out.Least != nil && *n < *out.Least || out.Most != nil && *n > *out.Most {
			return v.Errorf("is not between min and max")
		}
		out.Default = *n
	case declared.Boolean:
		yes, err := v.Bool()
		if err != nil {
			return err
		}
		out.Default = yes
	}
	return nil
}

func readVerbType(v strictyaml.Value, out *declared.Field) error {
	text, err := oneOf(v, string(declared.String), string(declared.Integer), string(declared.Boolean))
	out.Type = declared.Type(text)
	return err
}
