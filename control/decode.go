package control

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/control/channel"
)

// ofChannel looks whether a body is for this life of the channel, as far as it
// says so: a client that knows an older one shall be told just that, whatever
// else its request is like. What cannot be read is left to the strict reading.
func ofChannel(body []byte, generation, epoch int64) *caisson.Error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil
	}
	differs := func(key string, now int64) (int64, bool) {
		n, err := strconv.ParseInt(string(fields[key]), 10, 64)
		return n, err == nil && n != now
	}
	if n, yes := differs("generation", generation); yes {
		return caisson.Errorf(caisson.CodeGenerationStale, "the request is for generation %d of the channel, which is in generation %d", n, generation)
	}
	if n, yes := differs("epoch", epoch); yes {
		return caisson.Errorf(caisson.CodeRequestExpired, "the request is for epoch %d of the channel, which is in epoch %d", n, epoch)
	}
	return nil
}

// decode reads a body strictly, in the order in which a client is told what is
// wrong: the life of the channel, the time it may stay unaccepted, its form.
func decode(body []byte, id caisson.RequestID, generation, epoch int64, waited time.Duration) (caisson.ControlRequest, *caisson.Error) {
	if err := ofChannel(body, generation, epoch); err != nil {
		return caisson.ControlRequest{}, err
	}
	r, err := channel.Decode(body, id)
	if err == nil && waited > waitOf(r) {
		err = lateError()
	}
	return r, err
}

func lateError() *caisson.Error {
	return caisson.Errorf(caisson.CodeRequestExpired, "the time that it may stay unaccepted was over before it could begin")
}

// waitOf is how long a request may stay unaccepted; never 0, which is no bound.
func waitOf(r caisson.ControlRequest) time.Duration {
	return time.Duration(max(r.Wait, 1)) * time.Millisecond
}
