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

func TestVersionAndModeOfRedisAndOfValkey(t *testing.T) {
	for _, c := range []struct{ says, version, mode string }{
		{"redis_version:7.0.15\r\nredis_mode:cluster\r\n", "7.0.15", "cluster"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nredis_mode:sentinel\r\n", "Valkey 8.1.1", "sentinel"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:sentinel\r\n", "Valkey 9.1.2", "sentinel"},
		{"", "", ""},
	} {
		fields := Parse(c.says)
		if Version(fields) != c.version || Mode(fields) != c.mode {
			t.Errorf("%q: %q, %q", c.says, Version(fields), Mode(fields))
		}
	}
}
