package workspace_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

func sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// pointerTo is what a commit holds of a content that is kept by Git LFS.
func pointerTo(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", sha256Of(content), len(content))
}
