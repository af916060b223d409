package info

import (
	"reflect"
	"testing"
)

func TestParseReadsLinesOfFieldAndValue(t *testing.T) {
	got := Parse("# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:12\r\n\r\n# Replication\r\nrole:master\r\nslave0:ip=1.2.3.4,port=1\r\nnonsense\r\n")
	want := map[string]string{"redis_version": "7.0.15", "uptime_in_seconds": "12", "role": "master", "slave0": "ip=1.2.3.4,port=1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Parse = %v, want %v", got, want)
	}
}
