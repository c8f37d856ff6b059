package workspace_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(makerEnv) != "" {
		os.Exit(maker())
	}
	goleak.VerifyTestMain(m)
}
