package workspace_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(makerEnv) != "" {
		os.Exit(maker())
	}
	if os.Getenv(removerEnv) != "" {
		os.Exit(remover())
	}
	if os.Getenv(mergerEnv) != "" {
		os.Exit(merger())
	}
	if os.Getenv(manyEnv) != "" {
		os.Exit(several())
	}
	os.Exit(sandboxtest.Main(m))
}
