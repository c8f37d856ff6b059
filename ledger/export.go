package ledger

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/caisson-run/caisson"
)

// record is one line of an export. The names of its fields are those of the
// Open Cybersecurity Schema Framework 1.3 (schema.ocsf.io), class API Activity;
// what has no place there is in "unmapped".
type record struct {
	CategoryUID  int           `json:"category_uid"`
	CategoryName string        `json:"category_name"`
	ClassUID     int           `json:"class_uid"`
	ClassName    string        `json:"class_name"`
	TypeUID      int           `json:"type_uid"`
	ActivityID   int           `json:"activity_id"`
	ActivityName string        `json:"activity_name"`
	SeverityID   int           `json:"severity_id"`
	Time         int64         `json:"time"` // milliseconds
	TimeDT       string        `json:"time_dt"`
	Metadata     metadata      `json:"metadata"`
	Unmapped     recordContent `json:"unmapped"`
}

type metadata struct {
	Version     string         `json:"version"`
	Product     product        `json:"product"`
	UID         caisson.Digest `json:"uid"` // the event's hash
	Sequence    int64          `json:"sequence"`
	Correlation caisson.RunID  `json:"correlation_uid"` // the run
	EventCode   string         `json:"event_code"`
}

type product struct {
	Name       string `json:"name"`
	VendorName string `json:"vendor_name"`
}

type recordContent struct {
	Prev caisson.Digest  `json:"prev"`
	Body json.RawMessage `json:"body"`
	// Content is what the body refers to and no line before this one has: JSON
	// texts by digest.
	Content map[caisson.Digest]string `json:"content,omitempty"`
}

func newRecord(e caisson.Event) record {
	return record{
		CategoryUID: 6, CategoryName: "Application Activity", ClassUID: 6003, ClassName: "API Activity",
		TypeUID: 600399, ActivityID: 99, ActivityName: string(e.Kind), SeverityID: 1,
		Time: e.At.UnixMilli(), TimeDT: e.At.UTC().Format(time.RFC3339Nano),
		Metadata: metadata{
			Version: "1.3.0", Product: product{Name: productName, VendorName: "Caisson"},
			UID: e.Hash, Sequence: e.Seq, Correlation: e.Run, EventCode: string(e.Kind),
		},
		Unmapped: recordContent{Prev: e.Prev, Body: e.Body},
	}
}

// event is the reverse of newRecord. What the chain does not cover must be what
// newRecord makes of what it does: a reader looks at all of the line.
func (r record) event() (caisson.Event, error) {
	at, err := time.Parse(time.RFC3339Nano, r.TimeDT)
	if err != nil {
		return caisson.Event{}, err
	}
	e := caisson.Event{
		Run: r.Metadata.Correlation, Seq: r.Metadata.Sequence, At: at, Kind: caisson.EventKind(r.Metadata.EventCode),
		Body: r.Unmapped.Body, Prev: r.Unmapped.Prev, Hash: r.Metadata.UID,
	}
	want := newRecord(e)
	want.Unmapped.Content = r.Unmapped.Content
	if !reflect.DeepEqual(want, r) {
		return e, errors.New("its fields do not agree with each other")
	}
	return e, nil
}

// Export writes events as JSON lines, run by run, each in order. Another
// process may go on writing meanwhile; each run is taken up to some moment.
func Export(ctx context.Context, l caisson.Ledger, w io.Writer, opts Options) (Report, error) {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	v := newVerifier(Options{})
	written := map[caisson.Digest]bool{}
	err := eachEvent(ctx, l, opts.Runs, func(e caisson.Event) error {
		if err := v.add(e); err != nil {
			return err
		}
		r := newRecord(e)
		if opts.Content {
			content, err := contentOf(ctx, l, e, written)
			if err != nil {
				return err
			}
			r.Unmapped.Content = content
			v.report.Content += int64(len(content))
		}
		return writeError(lines.Encode(r))
	})
	if err = errors.Join(err, writeError(out.Flush())); err != nil {
		return v.report, err
	}
	return v.end()
}

func writeError(err error) error {
	if err == nil {
		return nil
	}
	return caisson.Errorf(caisson.CodeWriteFailed, "write export: %w", err)
}

func contentOf(ctx context.Context, l caisson.Ledger, e caisson.Event, written map[caisson.Digest]bool) (map[caisson.Digest]string, error) {
	content := map[caisson.Digest]string{}
	for _, digest := range references(e.Body) {
		if written[digest] {
			continue
		}
		raw, err := l.Blob(ctx, digest)
		if err != nil {
			return nil, err
		}
		content[digest], written[digest] = string(raw), true
	}
	if len(content) == 0 {
		return nil, nil
	}
	return content, nil
}

// references returns the digests of the [Content] in a body of a kind that
// refers to content: those directly in its fields.
func references(body json.RawMessage) []caisson.Digest {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil // no object, so it refers to nothing
	}
	var digests []caisson.Digest
	for _, raw := range fields {
		var c Content
		if json.Unmarshal(raw, &c) == nil && c.Digest != "" && c.Bytes > 0 && c.Value == nil {
			digests = append(digests, c.Digest)
		}
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// productName is what each line names as the product that wrote it.
const productName = "Caisson"

// VerifyExport verifies what [Export] wrote, which nobody needs to have kept
// safe: every chain, every piece of content, and that the fields which the
// chain does not cover agree with those that it does. CodeChainBroken names the
// first line that is not as it was written; CodeUsage says of what has no line of an
// export where it begins that it is none. An error of reading is returned as it is.
func VerifyExport(r io.Reader, opts Options) (Report, error) {
	v := newVerifier(opts)
	in := bufio.NewReader(r)
	lines := json.NewDecoder(in)
	for n := int64(1); ; n++ {
		broken := func(err error) error {
			return caisson.Errorf(caisson.CodeChainBroken, "line %d: %w", n, err).With("line", n)
		}
		var rec record
		var raw json.RawMessage
		var unread *fs.PathError
		err := lines.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			return v.end()
		case errors.As(err, &unread):
			return v.report, err
		case n == 1 && (err != nil || !ours(raw)) && damaged(raw, io.MultiReader(lines.Buffered(), in)):
			return v.report, broken(errors.New("it is not whole, or was changed"))
		case n == 1 && (err != nil || !ours(raw)):
			return v.report, caisson.Errorf(caisson.CodeUsage, "this is no export of a record: its first line is none").WithHint("`caisson audit export` writes one.")
		case err == nil:
			err = strictly(raw, &rec)
		}
		if err != nil {
			return v.report, broken(err)
		}
		e, err := rec.event()
		if err != nil {
			return v.report, broken(err)
		}
		if len(opts.Runs) > 0 && !slices.Contains(opts.Runs, e.Run) {
			continue
		}
		if err := v.add(e); err != nil {
			return v.report, err
		}
		for digest, text := range rec.Unmapped.Content {
			if caisson.DigestOf([]byte(text)) != digest || !slices.Contains(references(e.Body), digest) {
				return v.report, broken(fmt.Errorf("content %s was changed", digest))
			}
			v.report.Content++
		}
	}
}

// ours tells whether a line is one that an export has, changed perhaps.
func ours(raw json.RawMessage) bool {
	var r struct {
		Metadata struct {
			Product product `json:"product"`
		} `json:"metadata"`
	}
	return json.Unmarshal(raw, &r) == nil && r.Metadata.Product.Name == productName
}

const (
	// lineBegin is how each line begins, and lineMark is in each.
	lineBegin = `{"category_uid":6,"category_name":"Application Activity"`
	lineMark  = `"product":{"name":"` + productName + `","vendor_name":"Caisson"}`
	// lineEnough of the beginning is taken for one that was cut behind it.
	lineEnough = len(`{"category_uid":6,`)
	// maxLook bounds how far is looked for lines of an export in what may be none, and
	// maxHead how much of each line.
	maxLook = 64 << 20
	maxHead = 64 << 10
)

// damaged tells whether what does not begin as an export does is one whose first line
// was damaged: that recalls what it was, or one of the next two does. first is what
// was read of it as JSON, and rest what was not.
func damaged(first json.RawMessage, rest io.Reader) bool {
	if recalls(first) {
		return true
	}
	in := bufio.NewReaderSize(io.LimitReader(rest, maxLook), maxHead)
	for range 3 {
		head, err := in.ReadSlice('\n')
		if recalls(head) {
			return true
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return false
		}
	}
	return false
}

// recalls tells whether what is left of a line, or its beginning, was one of an export.
func recalls(head []byte) bool {
	head = bytes.TrimSpace(head)
	return bytes.Contains(head, []byte(lineMark)) || bytes.HasPrefix(head, []byte(lineBegin)) ||
		len(head) >= lineEnough && bytes.HasPrefix([]byte(lineBegin), head)
}

// strictly reads a line that has the fields of a record, and no others.
func strictly(raw json.RawMessage, rec *record) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(rec)
}
