package schema

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// The validator recurses along references and tries alternatives one by one, so
// a schema decides how much work an input is. These bounds keep that far under
// a second; schemas of real tools stay under a hundredth of them.
const (
	maxNodes = 20_000  // schemas in a schema
	maxWork  = 1 << 20 // schemas tried for one value and its first value below, and so on
)

type edge struct {
	path  string
	value any
	same  bool // applies to the same value
}

type work struct {
	root    any
	edges   map[string][]edge
	fan     map[string]int // schemas tried for one value
	open    map[string]bool
	deepest map[string]int
	loops   bool
}

// checkWork refuses a schema that would recurse without end, and returns how deep
// an input may be nested: 0 for as deep as JSON may, in a schema that does not
// refer to itself.
func checkWork(root map[string]any) (maxDepth int, err error) {
	w := &work{root: root, edges: map[string][]edge{}, fan: map[string]int{}, open: map[string]bool{}, deepest: map[string]int{}}
	if err := w.collect("", root, 0); err != nil {
		return 0, err
	}
	widest := 1
	for path := range w.edges {
		fan, err := w.fanOf(path)
		if err != nil {
			return 0, err
		}
		widest = max(widest, fan)
	}
	cost := w.costOf("")
	if !w.loops {
		if cost > maxWork {
			return 0, errors.New("it has too many alternatives inside alternatives")
		}
		return 0, nil
	}
	if widest == 1 {
		return 512, nil
	}
	return max(1, int(math.Log(maxWork)/math.Log(float64(widest)))), nil
}

func (w *work) collect(path string, schema any, level int) error {
	rules, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if _, seen := w.edges[path]; seen {
		return nil
	}
	w.edges[path] = nil
	if len(w.edges) > maxNodes || level > 256 {
		return errors.New("it is too large or nested too deep")
	}
	for _, keyword := range []string{"$dynamicRef", "$dynamicAnchor", "$recursiveRef"} {
		if _, there := rules[keyword]; there {
			return fmt.Errorf("%s is not supported", keyword)
		}
	}
	if _, there := rules["$id"]; there && path != "" {
		return errors.New("$id below its root is not supported")
	}
	if ref, there := rules["$ref"]; there {
		text, _ := ref.(string)
		target, value, err := lookup(w.root, text)
		if err != nil {
			return err
		}
		w.edges[path] = append(w.edges[path], edge{target, value, true})
	}
	for keyword, value := range rules {
		w.edges[path] = append(w.edges[path], below(path, keyword, value)...)
	}
	for _, e := range w.edges[path] {
		if err := w.collect(e.path, e.value, level+1); err != nil {
			return err
		}
	}
	return nil
}

// below returns the schemas that a keyword holds. Definitions apply to nothing by
// themselves; they are reached by reference.
func below(path, keyword string, value any) []edge {
	r := roleOf(keyword)
	if r < one || keyword == "$defs" || keyword == "definitions" {
		return nil
	}
	at := path + "/" + escape(keyword)
	same := inPlace(keyword)
	switch v := value.(type) {
	case []any:
		edges := make([]edge, len(v))
		for i := range v {
			edges[i] = edge{at + "/" + strconv.Itoa(i), v[i], same}
		}
		return edges
	case map[string]any:
		if r != named {
			return []edge{{at, v, same}}
		}
		var edges []edge
		for name, schema := range v {
			edges = append(edges, edge{at + "/" + escape(name), schema, same})
		}
		return edges
	default:
		return nil
	}
}

func (w *work) fanOf(path string) (int, error) {
	if fan, known := w.fan[path]; known {
		return fan, nil
	}
	if w.open[path] {
		return 0, fmt.Errorf("the reference at %q leads back to itself without going into a value", "#"+path)
	}
	w.open[path] = true
	defer delete(w.open, path)
	total := 1
	for _, e := range w.edges[path] {
		if !e.same {
			continue
		}
		fan, err := w.fanOf(e.path)
		if err != nil {
			return 0, err
		}
		total = min(total+fan, maxWork+1)
	}
	if total > maxWork {
		return 0, errors.New("it has too many alternatives inside alternatives")
	}
	w.fan[path] = total
	return total, nil
}

// costOf returns how many schemas are tried for a value and, at each level, the
// costliest part of it; it notes where the schema refers to itself.
func (w *work) costOf(path string) int {
	if cost, known := w.deepest[path]; known {
		return cost
	}
	if w.open[path] {
		w.loops = true
		return 1
	}
	w.open[path] = true
	total, part := 1, 0
	for _, e := range w.edges[path] {
		if cost := w.costOf(e.path); e.same {
			total = min(total+cost, maxWork+1)
		} else {
			part = max(part, cost)
		}
	}
	delete(w.open, path)
	w.deepest[path] = min(total+part, maxWork+1)
	return w.deepest[path]
}

// lookup finds what a reference into the schema itself points to, and its path.
func lookup(root any, ref string) (path string, value any, err error) {
	pointer, inside := strings.CutPrefix(ref, "#")
	if !inside || (pointer != "" && pointer[0] != '/') {
		return "", nil, fmt.Errorf("the reference %q does not lead into the schema by a path from its root", ref)
	}
	if pointer, err = url.PathUnescape(pointer); err != nil {
		return "", nil, fmt.Errorf("the reference %q is malformed", ref)
	}
	value = root
	if pointer == "" {
		return "", root, nil
	}
	for segment := range strings.SplitSeq(pointer[1:], "/") {
		segment = strings.ReplaceAll(strings.ReplaceAll(segment, "~1", "/"), "~0", "~")
		switch v := value.(type) {
		case map[string]any:
			value = v[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if err != nil || i < 0 || i >= len(v) {
				return "", nil, fmt.Errorf("the reference %q leads nowhere", ref)
			}
			value = v[i]
		default:
			value = nil
		}
		path += "/" + escape(segment)
	}
	if value == nil {
		return "", nil, fmt.Errorf("the reference %q leads nowhere", ref)
	}
	return path, value, nil
}

func escape(segment string) string {
	return strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
}
