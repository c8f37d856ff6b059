package control_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	childMain()
	goleak.VerifyTestMain(m)
}
