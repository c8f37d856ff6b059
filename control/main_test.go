package control_test

import (
	"os"
	"testing"

	"github.com/caisson-run/caisson/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	childMain()
	floodMain()
	os.Exit(sandboxtest.Main(m))
}
