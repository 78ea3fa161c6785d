// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package script

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

func TestDateReadsTwoFormats(t *testing.T) {
	tests := map[string]struct {
		reason string
		date   string
		want   string
	}{
		"ISO stays":                           {reason: "it is what workerd reads", date: "2026-01-15", want: "2026-01-15"},
		"month first":                         {reason: "workerd rejects this spelling, people write it", date: "01/15/2026", want: "2026-01-15"},
		"a leap day":                          {reason: "2024 had one", date: "02/29/2024", want: "2024-02-29"},
		"long ago":                            {reason: "how early is workerd's matter", date: "2001-01-01", want: "2001-01-01"},
		"no calendar has 30 February":         {reason: "it would be 2 March", date: "02/30/2026"},
		"nor in ISO":                          {reason: "as above", date: "2026-02-30"},
		"no leap day":                         {reason: "2026 has none", date: "2026-02-29"},
		"day first":                           {reason: "there is no month 15, and 01/02 would be read the other way round", date: "15/01/2026"},
		"one digit":                           {reason: "workerd wants two", date: "2026-1-15"},
		"one digit, month first":              {reason: "as above", date: "1/15/2026"},
		"a time":                              {reason: "a date has none", date: "2026-01-15T00:00:00Z"},
		"blanks":                              {reason: "no spelling has any", date: " 2026-01-15"},
		"a second line":                       {reason: "the date is written into a file", date: "2026-01-15\n"},
		"nothing":                             {reason: "workerd needs a date", date: ""},
		"digits of another script":            {reason: "workerd reads ASCII", date: "２０２６-01-15"},
		"a year of five digits":               {reason: "workerd reads four", date: "12026-01-15"},
		"two dates":                           {reason: "it is one date", date: "2026-01-15 01/15/2026"},
		"slashes in the order of ISO":         {reason: "that is neither spelling", date: "2026/01/15"},
		"hyphens in the order of the slashes": {reason: "that is neither spelling", date: "01-15-2026"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Date(tc.date)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: Date(%q): got %q, %v, want %q", tc.reason, tc.date, got, err, tc.want)
			}
		})
	}
}

var iso = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

func FuzzDate(f *testing.F) {
	f.Add("01/15/2026")
	f.Add("2026-02-30")
	f.Fuzz(func(t *testing.T, date string) {
		got, err := Date(date)
		if err != nil {
			if got != "" || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("%q: refused with %q and %q", date, got, err)
			}
			return
		}
		if !iso.MatchString(got) {
			t.Errorf("%q: is read as %q", date, got)
		}
		if again, err := Date(got); again != got || err != nil {
			t.Errorf("%q: read again it is %q, %v", got, again, err)
		}
	})
}

func TestPrefixStaysBelowAccount(t *testing.T) {
	tests := map[string]struct {
		reason string
		url    string
		want   string
	}{
		"a bare key":                {reason: "the design document has both forms", url: "1234/hello/1690000000", want: "1234/hello/1690000000"},
		"a key in the bucket":       {reason: "as above", url: "s3://scripts/1234/hello/1690000000", want: "1234/hello/1690000000"},
		"slashes at both ends":      {reason: "they name nothing", url: "/1234/hello/1/", want: "1234/hello/1"},
		"slashes behind the bucket": {reason: "as above", url: "s3://scripts//1234/hello/1/", want: "1234/hello/1"},
		"an object":                 {reason: "an address names an object as well", url: "1234/hello/1/index.js", want: "1234/hello/1/index.js"},
		"a percent sign":            {reason: "keys are not decoded", url: "1234/%2e%2e/5678", want: "1234/%2e%2e/5678"},
		"the account alone":         {reason: "that is all scripts of the account", url: "1234/"},
		"another account":           {reason: "it is somebody else's", url: "5678/hello/1"},
		"an account that begins as this one": {
			reason: "1234x/ is not below 1234/", url: "1234x/hello/1",
		},
		"another bucket":                  {reason: "the operator may read it, the account may not", url: "s3://other/1234/hello/1"},
		"a bucket that begins as the one": {reason: "it is another bucket", url: "s3://scripts2/1234/hello/1"},
		"no bucket":                       {reason: "the one is named or not", url: "s3:///1234/hello/1"},
		"a bucket alone":                  {reason: "that is everybody's", url: "s3://scripts"},
		"the way up":                      {reason: "some resolve it", url: "1234/../5678/hello"},
		"the way up at the end":           {reason: "as above", url: "1234/hello/.."},
		"a dot":                           {reason: "some drop it", url: "1234/./hello"},
		"a dot first":                     {reason: "as above", url: "./1234/hello"},
		"an empty segment":                {reason: "some drop it", url: "1234//hello"},
		"a NUL":                           {reason: "some end there", url: "1234/hello\x00/1"},
		"a second line":                   {reason: "keys are in messages", url: "1234/hello\n/1"},
		"no UTF-8":                        {reason: "keys of S3 are UTF-8", url: "1234/\xff/1"},
		"too long":                        {reason: "S3 has none that is longer", url: "1234/" + strings.Repeat("a", 1024)},
		"nothing":                         {reason: "it would be everybody's", url: ""},
		"a slash":                         {reason: "as above", url: "/"},
		"https":                           {reason: "there is one store, and its address is configured", url: "https://scripts/1234/hello/1"},
		"a scheme in capitals":            {reason: "it is nobody's spelling", url: "S3://scripts/1234/hello/1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Prefix(tc.url, "scripts", "1234")
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: Prefix(%q): got %q, %v, want %q", tc.reason, tc.url, got, err, tc.want)
			}
		})
	}
}

func TestPrefixNeedsBucketAndAccount(t *testing.T) {
	tests := map[string]struct {
		reason               string
		url, bucket, account string
	}{
		"no bucket":           {reason: "two empty names are not the same bucket", url: "s3:///1234/a", account: "1234"},
		"no account":          {reason: "everything lies below nothing", url: "1234/a", bucket: "b"},
		"no account, slashes": {reason: "as above", url: "//a", bucket: "b"},
		"a path as account":   {reason: "an account is one segment", url: "a/b/c", bucket: "b", account: "a/b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := Prefix(tc.url, tc.bucket, tc.account); err == nil {
				t.Errorf("%s: Prefix(): got %q", tc.reason, got)
			}
		})
	}
}

func FuzzPrefixStaysBelowAccount(f *testing.F) {
	f.Add("s3://scripts/1234/hello/1", "scripts", "1234")
	f.Add("1234/../5678", "scripts", "1234")
	f.Fuzz(func(t *testing.T, url, bucket, account string) {
		key, err := Prefix(url, bucket, account)
		if err != nil {
			if key != "" || strings.ContainsAny(err.Error(), "\n\x00") && !strings.ContainsAny(account, "\n\x00") {
				t.Errorf("%q: refused with %q and %q", url, key, err)
			}
			return
		}
		rest, below := strings.CutPrefix(key, account+"/")
		if account == "" || !below || rest == "" || len(key) > 1024 {
			t.Errorf("%q: the key %q is not below %q", url, key, account)
		}
		for segment := range strings.SplitSeq(key, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "\x00\n\r\x7f") {
				t.Errorf("%q: the key %q has the segment %q", url, key, segment)
			}
		}
		if again, err := Prefix(key, bucket, account); again != key || err != nil {
			t.Errorf("%q: read again it is %q, %v", key, again, err)
		}
		if trimmed, found := strings.CutPrefix(url, "s3://"); found && !strings.HasPrefix(trimmed, bucket+"/") {
			t.Errorf("%q: is of another bucket than %q", url, bucket)
		}
	})
}

func TestURLsMergesBothFields(t *testing.T) {
	s := release.Script{ScriptURLs: []string{"b", "a", "b"}, ScriptsURLs: []string{"c", "a"}}
	if diff := cmp.Diff([]string{"b", "a", "c"}, URLs(s)); diff != "" {
		t.Errorf("scriptUrls first, each once (-want +got):\n%s", diff)
	}
}

func TestExportedNames(t *testing.T) {
	tests := map[string]struct {
		reason                     string
		script                     string
		prefix, service, portNamed string
	}{
		"of the design document": {
			reason: "WASM_WORKER_ is its example", script: "wasm-worker", prefix: "WASM_WORKER_", service: "worker-wasm-worker", portNamed: "w-1321217b",
		},
		"an underscore": {
			reason: "no Service has one in its name", script: "wasm_worker", prefix: "WASM_WORKER_", service: "worker-wasm-worker", portNamed: "w-78ca2c3a",
		},
		"a digit first": {
			reason: "no variable begins with one", script: "1st", prefix: "_1ST_", service: "worker-1st", portNamed: "w-e01ddf65",
		},
		"the loader's": {
			reason: "a key PRELOAD would be code in the process", script: "ld", prefix: "_LD_", service: "worker-ld", portNamed: "w-e5a08ffd",
		},
		"the loader's, in two words": {
			reason: "a key PATH would name libraries", script: "ld-library", prefix: "_LD_LIBRARY_", service: "worker-ld-library", portNamed: "w-17bf298d",
		},
		"the C library's": {
			reason: "a key TUNABLES would change it", script: "glibc", prefix: "_GLIBC_", service: "worker-glibc", portNamed: "w-1b11757d",
		},
		"one that only begins so": {
			reason: "nobody reads LDAP_", script: "ldap", prefix: "LDAP_", service: "worker-ldap", portNamed: "w-f718933d",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := EnvPrefix(tc.script); got != tc.prefix {
				t.Errorf("%s: EnvPrefix(): got %s, want %s", tc.reason, got, tc.prefix)
			}
			if got := ServiceName(tc.script); got != tc.service {
				t.Errorf("%s: ServiceName(): got %s, want %s", tc.reason, got, tc.service)
			}
			if got := PortName(tc.script); got != tc.portNamed {
				t.Errorf("%s: PortName(): got %s, want %s", tc.reason, got, tc.portNamed)
			}
		})
	}
}
