package etcd

import "testing"

func TestVersionsThatEndLeasesTooEarly(t *testing.T) {
	for version, want := range map[string]bool{
		"2.3.8": true, "3.3.27": true, "3.4.23": true, "3.4.30": true, "3.4.31": false, "3.5.0": true, "3.5.12": true, "3.5.13": false,
		"3.5.16": false, "3.6.0": false, "3.7.3": false, "3.6.0-rc.1": false, "4.0.0": false, "": true, "next": true,
	} {
		if got := revokesTooEarly(version); got != want {
			t.Errorf("revokesTooEarly(%q) = %v", version, got)
		}
	}
}
