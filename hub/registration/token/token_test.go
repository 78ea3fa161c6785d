// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestParse(t *testing.T) {
	issued := New()
	plain := issued.Reveal()
	if len(plain) != Length {
		t.Errorf("a token has %d bytes, want %d", len(plain), Length)
	}
	if got, err := Parse(plain); err != nil || got != issued {
		t.Errorf("Parse: %v, %v, want the token that was issued", got, err)
	}

	cases := map[string]string{
		"Nothing":                             "",
		"The prefix alone":                    prefix,
		"Another prefix":                      "kubelets." + plain[len(prefix):],
		"Upper case in the prefix":            "Spokelet." + plain[len(prefix):],
		"One byte less":                       plain[:Length-1],
		"One byte more":                       plain + "A",
		"A space at the end":                  plain[:Length-1] + " ",
		"A line end inside":                   plain[:20] + "\n" + plain[21:],
		"Padding":                             plain[:Length-1] + "=",
		"The alphabet of plain base64":        prefix + strings.Repeat("+", 43),
		"A second spelling of the last digit": prefix + strings.Repeat("A", 42) + "B",
		"A token behind a token":              plain + plain,
	}
	for name, input := range cases {
		t.Run(name+" is no token", func(t *testing.T) {
			_, err := Parse(input)
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("Parse: %v, want %v", err, ErrMalformed)
			}
			if len(input) > 20 && strings.Contains(err.Error(), input[10:]) {
				t.Error("the error repeats the token")
			}
		})
	}

	t.Run("A token does not print itself", func(t *testing.T) {
		for _, verb := range []string{"%v", "%s", "%+v", "%#v", "%q"} {
			if got := fmt.Sprintf(verb, issued); strings.Contains(got, plain[len(prefix):]) {
				t.Errorf("%s prints %s", verb, got)
			}
		}
	})
}

func TestCheckRefusesReservedNames(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	issued := New()
	mine, other := KeyHash([]byte("mine")), KeyHash([]byte("other"))
	open := Record{Hash: issued.Hash(), Expires: now.Add(time.Hour)}
	bound := Record{Hash: issued.Hash(), Expires: now.Add(time.Hour), BoundKey: &mine}
	cases := map[string]struct {
		record Record
		token  Token
		key    Hash
		at     time.Time
		want   error
	}{
		"An unused token":                        {record: open, token: issued, key: mine, at: now},
		"A token, again by its key":              {record: bound, token: issued, key: mine, at: now},
		"A token in its last moment":             {record: open, token: issued, key: mine, at: now.Add(time.Hour - 1)},
		"A token at its end":                     {record: open, token: issued, key: mine, at: now.Add(time.Hour), want: ErrExpired},
		"A token past its end, by its key":       {record: bound, token: issued, key: mine, at: now.Add(2 * time.Hour), want: ErrExpired},
		"A token of another key":                 {record: bound, token: issued, key: other, at: now, want: ErrUsed},
		"A forged token":                         {record: open, token: New(), key: mine, at: now, want: ErrForged},
		"A forged token, after the end":          {record: open, token: New(), key: mine, at: now.Add(2 * time.Hour), want: ErrForged},
		"The zero token against an empty record": {record: Record{Expires: now.Add(time.Hour)}, key: mine, at: now, want: ErrForged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.record.Check(tc.token, tc.key, tc.at); !errors.Is(err, tc.want) || (tc.want == nil && err != nil) {
				t.Errorf("Check: %v, want %v", err, tc.want)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	key := KeyHash([]byte("key"))
	record := Record{Hash: New().Hash(), Expires: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), BoundKey: &key}
	got, err := Decode(record.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record, got); diff != "" {
		t.Error(diff)
	}

	for name, spoil := range map[string]func(map[string][]byte){
		"no hash":                        func(d map[string][]byte) { delete(d, DataHash) },
		"a hash that is too short":       func(d map[string][]byte) { d[DataHash] = []byte("ab") },
		"a hash that is no hex":          func(d map[string][]byte) { d[DataHash] = []byte(strings.Repeat("x", 64)) },
		"no end":                         func(d map[string][]byte) { delete(d, DataExpires) },
		"an end that is no time":         func(d map[string][]byte) { d[DataExpires] = []byte("tomorrow") },
		"a bound key that is empty":      func(d map[string][]byte) { d[DataBoundKey] = nil },
		"a bound key that is no SHA-256": func(d map[string][]byte) { d[DataBoundKey] = []byte("key") },
	} {
		t.Run("A record with "+name+" lets nobody in", func(t *testing.T) {
			data := record.Encode()
			spoil(data)
			if _, err := Decode(data); !errors.Is(err, ErrRecord) {
				t.Errorf("Decode: %v, want %v", err, ErrRecord)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Token{}.Reveal())
	f.Add("spokelet." + strings.Repeat("_", 43))
	f.Add("spokelet." + strings.Repeat("A", 21) + "\r\n" + strings.Repeat("A", 20))
	f.Add("")
	f.Fuzz(func(t *testing.T, input string) {
		parsed, err := Parse(input)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("Parse(%q): %v", input, err)
			}
			return
		}
		if parsed.Reveal() != input {
			t.Errorf("Parse(%q) is the token %q: two spellings", input, parsed.Reveal())
		}
	})
}
