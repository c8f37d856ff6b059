package container

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/caisson-run/caisson"
)

// Options of an engine.
type Options struct {
	Name string // one of Names
	// Endpoint is a unix:// or npipe:// address. Empty: it is looked for.
	Endpoint string
	// Guest returns the guest program, which is for Linux.
	Guest func() ([]byte, error)
	// Instance is this process, for records.
	Instance caisson.InstanceID
	// StateDir is a directory of this user's, the same in each process: what a
	// killed one left is found by it.
	StateDir string
	// Env returns the caller's environment variables. Nil is os.Getenv.
	Env func(string) string
	// Images says which image boxes are made of, until Use says another.
	Images
	// Notice tells a person what is waited for. Nil: nobody is told.
	Notice func(text string)
}

// Images are a user's settings of the image of boxes.
type Images struct {
	// Image is the user's. Empty: one is built from Base.
	Image string
	// Base is what our image is built from. Empty is DefaultBase.
	Base string
	// Refresh is the age at which our image is built again, and the user's
	// pulled again, beside the work. 0: never.
	Refresh time.Duration
}

// Engine implements caisson.Engine for one container engine of this machine.
// Close it when its sandboxes have ended.
type Engine struct {
	opts Options

	mu     sync.Mutex
	images Images
	client *client.Client
	at     string // where client leads
	probed *caisson.Isolation

	background sync.WaitGroup // refreshes of images
	closing    chan struct{}
	closed     bool
	refreshing bool
	announced  sync.Once
	platform   platform
}

// New returns an engine; it touches nothing.
func New(opts Options) *Engine {
	if opts.Env == nil {
		opts.Env = os.Getenv
	}
	return &Engine{opts: opts, images: opts.Images, closing: make(chan struct{})}
}

// Use has boxes that are opened from now on made of other images: a process that
// lives long follows the user's settings.
func (e *Engine) Use(images Images) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.images != images {
		e.images, e.probed = images, nil
	}
}

// use are the settings of the image of boxes, now.
func (e *Engine) use() Images {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.images
}

// Name implements caisson.Engine.
func (e *Engine) Name() string { return e.opts.Name }

// Close ends what goes on in the background and releases the connection.
func (e *Engine) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	cli := e.client
	e.client = nil
	e.mu.Unlock()
	e.background.Wait()
	err := e.platform.close()
	if cli == nil {
		return err
	}
	if closeErr := cli.Close(); err == nil {
		err = closeErr
	}
	return err
}

// endpoint is where the engine is looked for, for people.
func (e *Engine) endpoint() string {
	if e.opts.Endpoint != "" {
		return e.opts.Endpoint
	}
	at, err := here(runtime.GOOS, e.opts.Env).find(e.opts.Name)
	if err != nil {
		return "no place: " + err.Error()
	}
	return at
}

// meet returns the client of the engine, which has said who it is.
func (e *Engine) meet(ctx context.Context) (*client.Client, system.Info, error) {
	cli, err := e.dial()
	if err != nil {
		return nil, system.Info{}, err
	}
	info, err := e.info(ctx, cli)
	return cli, info, err
}

// dial returns the client of the engine's endpoint. It speaks to nobody yet.
func (e *Engine) dial() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return e.client, nil
	}
	at := e.opts.Endpoint
	if at == "" {
		var err error
		if at, err = here(runtime.GOOS, e.opts.Env).find(e.opts.Name); err != nil {
			return nil, err
		}
	}
	cli, err := dialAt(at)
	if err != nil {
		return nil, caisson.Errorf(caisson.CodeEngineUnavailable, "engine %s: %w", e.opts.Name, err)
	}
	e.client, e.at = cli, at
	return cli, nil
}

func dialAt(endpoint string) (*client.Client, error) {
	return client.New(client.WithHost(endpoint), client.WithUserAgent("caisson"))
}

// instance tells this installation of the engine from any other. Older versions of
// Docker have one id for a machine, whichever their directory of data is.
func (e *Engine) instance(info system.Info) string {
	return e.at + "#" + info.ID + "#" + info.DockerRootDir
}

// info asks the engine who it is. The id in it is the same each time.
func (e *Engine) info(ctx context.Context, cli *client.Client) (system.Info, error) {
	ctx, cancel := bound(ctx, infoBound)
	defer cancel()
	got, err := cli.Info(ctx, client.InfoOptions{})
	if err != nil {
		return system.Info{}, e.fault(ctx, "ask the engine who it is", err)
	}
	if got.Info.OSType != "linux" {
		return system.Info{}, caisson.Errorf(caisson.CodeUnsupported, "engine %s runs containers of %q, not of Linux", e.opts.Name, got.Info.OSType).
			WithHint("Switch it to Linux containers.")
	}
	kind, err := cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return system.Info{}, e.fault(ctx, "ask the engine who it is", err)
	}
	if isPodman(kind) {
		// It makes an id up for each answer. What it knows of containers is all in
		// its storage, and so that is who it is, whichever process of it answers.
		got.Info.ID = got.Info.Name + ":" + got.Info.DockerRootDir
	}
	return got.Info, nil
}

// isPodman tells whether an engine is a Podman, which may also be at the place of another.
func isPodman(kind client.ServerVersionResult) bool {
	return slices.ContainsFunc(kind.Components, func(c system.ComponentVersion) bool { return strings.HasPrefix(c.Name, "Podman") })
}

// secured tells whether the engine says that it works in a way.
func secured(info system.Info, option string) bool {
	return slices.Contains(info.SecurityOptions, "name="+option)
}

// dir is where the engine's own directories on the host are.
func (e *Engine) dir() string { return filepath.Join(e.opts.StateDir, "containers") }
