package redistest

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestDecoderReadsEveryType(t *testing.T) {
	for _, tc := range []struct {
		in   string
		kind byte
		want any
	}{
		{"+OK\r\n", '+', "OK"},
		{"-ERR x\r\n", '-', Error("ERR x")},
		{":-12\r\n", ':', int64(-12)},
		{"$3\r\na\r\n\r\n", '$', "a\r\n"},
		{"$0\r\n\r\n", '$', ""},
		{"$-1\r\n", '$', nil},
		{"*-1\r\n", '*', nil},
		{"*0\r\n", '*', []any{}},
		{"*2\r\n*1\r\n:1\r\n_\r\n", '*', []any{[]any{int64(1)}, nil}},
		{"_\r\n", '_', nil},
		{"#t\r\n", '#', true},
		{"#f\r\n", '#', false},
		{",1.5e3\r\n", ',', "1.5e3"},
		{"(12345678901234567890\r\n", '(', "12345678901234567890"},
		{"!5\r\nERR x\r\n", '!', Error("ERR x")},
		{"=5\r\ntxt:a\r\n", '=', "txt:a"},
		{"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n:2\r\n", '%', []any{"a", int64(1), "b", []any{int64(2)}}},
		{"~2\r\n+a\r\n+b\r\n", '~', []any{"a", "b"}},
		{">2\r\n+message\r\n+x\r\n", '>', []any{"message", "x"}},
		{"|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n", '$', "v"},
		{"\n", '\n', nil},
	} {
		d := newDecoder(strings.NewReader(tc.in + "+next\r\n"))
		kind, v, err := d.next()
		if err != nil || kind != tc.kind || !reflect.DeepEqual(v, tc.want) || string(d.raw) != tc.in {
			t.Errorf("%q: %q %#v %v raw %q; want %q %#v", tc.in, kind, v, err, d.raw, tc.kind, tc.want)
			continue
		}
		if _, v, err := d.next(); err != nil || v != "next" || string(d.raw) != "+next\r\n" {
			t.Errorf("after %q: %#v %v raw %q", tc.in, v, err, d.raw)
		}
	}
}

func TestDecoderTellsNonsenseFromAnEarlyEnd(t *testing.T) {
	for _, in := range []string{"PING\r\n", "+OK\n", "\r\n", ":x\r\n", "*x\r\n", "$x\r\n"} {
		_, _, err := newDecoder(strings.NewReader(in)).next()
		if _, ok := errors.AsType[protocolError](err); !ok {
			t.Errorf("%q: %v, want a protocolError", in, err)
		}
	}
	for _, in := range []string{"", "+O", "$3\r\nab", "*2\r\n+a\r\n"} {
		_, _, err := newDecoder(strings.NewReader(in)).next()
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want an early end", in, err)
		}
	}
}
