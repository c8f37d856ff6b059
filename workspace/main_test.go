package workspace_test

import (
	"os"
	"testing"
	"time"

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
	if d, err := time.ParseDuration(os.Getenv("CAISSON_TEST_RESTS_FOR")); err == nil {
		time.Sleep(d)
		os.Exit(0)
	}
	os.Exit(sandboxtest.Main(m))
}
