package mask

import (
	"context"

	"github.com/caisson-run/caisson"
)

// files are the files of a box in which something is hidden.
type files struct {
	caisson.Files
	mask *guard
}

// Read implements caisson.Files.
func (f files) Read(ctx context.Context, path string, offset, limit int64) (caisson.FileContent, error) {
	if err := f.mask.renew(ctx); err != nil {
		return caisson.FileContent{}, err
	}
	return f.Files.Read(ctx, path, offset, limit)
}

// Write implements caisson.Files.
func (f files) Write(ctx context.Context, path string, data []byte, opts caisson.WriteOptions) (caisson.FileInfo, error) {
	if err := f.mask.renew(ctx); err != nil {
		return caisson.FileInfo{}, err
	}
	return f.Files.Write(ctx, path, data, opts)
}

// Stat implements caisson.Files.
func (f files) Stat(ctx context.Context, path string) (caisson.FileInfo, error) {
	if err := f.mask.renew(ctx); err != nil {
		return caisson.FileInfo{}, err
	}
	return f.Files.Stat(ctx, path)
}

// Glob implements caisson.Files.
func (f files) Glob(ctx context.Context, dir, pattern string, limit int) (caisson.GlobResult, error) {
	if err := f.mask.renew(ctx); err != nil {
		return caisson.GlobResult{}, err
	}
	return f.Files.Glob(ctx, dir, pattern, limit)
}

// Grep implements caisson.Files.
func (f files) Grep(ctx context.Context, q caisson.GrepQuery) (caisson.GrepResult, error) {
	if err := f.mask.renew(ctx); err != nil {
		return caisson.GrepResult{}, err
	}
	return f.Files.Grep(ctx, q)
}
