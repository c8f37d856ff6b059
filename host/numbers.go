package host

import (
	"context"
	"strconv"

	"github.com/caisson-run/caisson"
)

// In commands about sandboxes a number is that of a sandbox in `caisson sandbox
// ls`, in all of them, and never that of a workspace in its own listing.

// isNumber tells whether ref has the form of a number in a listing.
func isNumber(ref string) bool {
	n, err := strconv.Atoi(ref)
	return err == nil && n > 0 && strconv.Itoa(n) == ref
}

// placeOf is the workspace that ref means to a command about sandboxes.
func (h *Host) placeOf(ctx context.Context, ref string) (caisson.Workspace, error) {
	ws, err := h.workspaceOf(ctx, ref)
	if isNumber(ref) && (err != nil || ws.Branch != ref && ws.Name != ref) {
		return caisson.Workspace{}, noNumber(ref)
	}
	return ws, err
}

// numbered returns the sandbox of that number.
func (h *Host) numbered(ctx context.Context, ref string) (BoxView, error) {
	list, err := h.ListBoxes(ctx, false)
	if n, bad := strconv.Atoi(ref); err == nil && bad == nil && n >= 1 && n <= len(list) {
		return list[n-1], nil
	}
	if err == nil {
		err = noNumber(ref)
	}
	return BoxView{}, err
}

func noNumber(ref string) error {
	return caisson.Errorf(caisson.CodeNotFound, "there is no sandbox with the number %s", ref).WithHint("`caisson sandbox ls` numbers them.")
}

// unnumbered returns ref, or, where that is the number of a sandbox and nothing is
// called so, what names the place of that: the run of one that is kept open, else
// its workspace.
func (h *Host) unnumbered(ctx context.Context, ref string) (string, error) {
	if !isNumber(ref) {
		return ref, nil
	}
	if _, err := h.placeOf(ctx, ref); caisson.CodeOf(err) != caisson.CodeNotFound {
		return ref, err
	}
	v, err := h.numbered(ctx, ref)
	switch {
	case err != nil:
		return ref, err
	case v.Session == caisson.SessionServed:
		return string(v.Run), nil
	case v.Workspace == "":
		return ref, caisson.Errorf(caisson.CodeUnsupported, "sandbox %s has no workspace, and is not kept open: nothing else can work in it", v.ID)
	}
	return string(v.Workspace), nil
}
