// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// files are those of an archive; of an empty name there is none.
type files map[string]string

const metadata = "apiVersion: v2\nname: web\nversion: 1.2.3\n"

// archiveOf packs files in the folder of a chart.
func archiveOf(t testing.TB, content files) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	all := tar.NewWriter(packed)
	for _, name := range slices.Sorted(maps.Keys(content)) { // the same archive each time
		text := content[name]
		if err := all.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(all, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func web(t testing.TB, version string) []byte {
	t.Helper()
	return archiveOf(t, files{"web/Chart.yaml": strings.ReplaceAll(metadata, "1.2.3", version), "web/templates/a.yaml": "kind: ConfigMap\n", "web/values.yaml": "a: 1\n"})
}

// server serves paths over TLS.
func server(t *testing.T, paths map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range paths {
		mux.HandleFunc(path, handler)
	}
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

func sends(raw []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(raw) }
}

func redirects(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

// source reads from servers whose certificates it cannot check.
func source(t *testing.T, allowed ...string) *Source {
	t.Helper()
	list, err := ParseAllowed(allowed)
	if err != nil {
		t.Fatal(err)
	}
	return NewSource(list, true)
}

func TestGet(t *testing.T) {
	sum := sha256.Sum256(web(t, "1.2.3"))
	index := fmt.Sprintf(`{apiVersion: v1, entries: {web: [
		{name: web, version: 1.2.3, urls: [files/web-1.2.3.tgz], digest: %s},
		{name: web, version: 2.0.0, urls: [files/web-2.0.0.tgz]}, {name: web, version: 3.0.0-rc1, urls: [x]}, null]}}`, hex.EncodeToString(sum[:]))
	s := server(t, map[string]http.HandlerFunc{
		"/web-1.2.3.tgz":              sends(web(t, "1.2.3")),
		"/moved.tgz":                  redirects("/web-1.2.3.tgz"),
		"/repo/index.yaml":            sends([]byte(index)),
		"/repo/files/web-1.2.3.tgz":   sends(web(t, "1.2.3")),
		"/repo/files/web-2.0.0.tgz":   sends(web(t, "2.0.0")),
		"/download":                   sends(web(t, "1.2.3")),
		"/plain/web-1.2.3-nothing.gz": sends(nil),
	})
	for name, tc := range map[string]struct {
		reason string
		chart  message.Chart
		want   string
	}{
		"an archive":                       {reason: "the original's way", chart: message.Chart{URL: "/web-1.2.3.tgz"}, want: "1.2.3"},
		"an archive of a name":             {reason: "the original did not read the name", chart: message.Chart{URL: "/web-1.2.3.tgz", Name: "web"}, want: "1.2.3"},
		"an archive that has moved":        {reason: "to where it is allowed", chart: message.Chart{URL: "/moved.tgz"}, want: "1.2.3"},
		"an archive by no name":            {reason: "what is sent counts", chart: message.Chart{URL: "/download"}, want: "1.2.3"},
		"the latest of a repository":       {reason: "no version is the latest stable one", chart: message.Chart{URL: "/repo", Name: "web"}, want: "2.0.0"},
		"a repository with a slash":        {reason: "it is the same", chart: message.Chart{URL: "/repo/", Name: "web"}, want: "2.0.0"},
		"a version of a repository":        {reason: "it is there", chart: message.Chart{URL: "/repo", Name: "web", Version: "1.2.3"}, want: "1.2.3"},
		"a range of versions":              {reason: "as Helm reads it", chart: message.Chart{URL: "/repo", Name: "web", Version: "~1.2"}, want: "1.2.3"},
		"an archive of the version":        {reason: "it is the one", chart: message.Chart{URL: "/web-1.2.3.tgz", Version: "1.2.3"}, want: "1.2.3"},
		"an archive in a range of version": {reason: "it is in it", chart: message.Chart{URL: "/web-1.2.3.tgz", Version: "^1.0.0"}, want: "1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.chart.URL = s.URL + tc.chart.URL
			got, err := source(t, s.URL).Get(t.Context(), tc.chart)
			if err != nil {
				t.Fatalf("%v: %s", err, tc.reason)
			}
			if got.Name() != "web" || got.Metadata.Version != tc.want {
				t.Errorf("got %s of version %s, want %s: %s", got.Name(), got.Metadata.Version, tc.want, tc.reason)
			}
		})
	}
}

func TestGetRefusesInvalidCharts(t *testing.T) {
	elsewhere := server(t, map[string]http.HandlerFunc{"/web.tgz": sends(web(t, "1.2.3"))})
	const nobody = "https://127.0.0.1:1" // nobody is given that port
	large := strings.Repeat("a", maxUnpacked)
	s := server(t, map[string]http.HandlerFunc{
		"/web.tgz":         sends(web(t, "1.2.3")),
		"/out.tgz":         redirects(elsewhere.URL + "/web.tgz"),
		"/round.tgz":       redirects("/round.tgz"),
		"/broken.tgz":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"/text.tgz":        sends([]byte("<html>not found</html>")),
		"/cut.tgz":         sends(web(t, "1.2.3")[:60]),
		"/empty.tgz":       sends(archiveOf(t, nil)),
		"/other.tgz":       sends(archiveOf(t, files{"readme/README.md": "hello"})),
		"/noname.tgz":      sends(archiveOf(t, files{"web/Chart.yaml": "apiVersion: v2\nversion: 1.0.0\n"})),
		"/library.tgz":     sends(archiveOf(t, files{"web/Chart.yaml": metadata + "type: library\n"})),
		"/parts.tgz":       sends(archiveOf(t, files{"web/Chart.yaml": metadata + "dependencies: [{name: db, version: 1.0.0, repository: https://x}]\n"})),
		"/escape.tgz":      sends(archiveOf(t, files{"web/Chart.yaml": metadata, "web/../../etc/passwd": "x"})),
		"/absolute.tgz":    sends(archiveOf(t, files{"web/Chart.yaml": metadata, "web//etc/passwd": "x"})),
		"/bomb.tgz":        sends(archiveOf(t, files{"web/Chart.yaml": metadata, "web/files/a": large})),
		"/large.tgz":       sends(make([]byte, maxArchive+1)),
		"/repo/index.yaml": sends([]byte("{apiVersion: v1, entries: {web: [{name: web, version: 1.2.3, urls: [a.tgz], digest: abc}], none: [{name: none, version: 1.0.0}], up: [{name: up, version: 1.0.0, urls: ['../../x.tgz']}], out: [{name: out, version: 1.0.0, urls: ['" + elsewhere.URL + "/web.tgz']}]}}")),
		"/repo/a.tgz":      sends(web(t, "1.2.3")),
		"/html/index.yaml": sends([]byte("<html>: {")),
	})
	for name, tc := range map[string]struct {
		reason string
		chart  message.Chart
		want   error
		text   string
	}{
		"nobody there":                     {reason: "the reason is the network's", chart: message.Chart{URL: nobody + "/web.tgz"}, want: ErrUnavailable, text: "connection refused"},
		"not found":                        {reason: "a server's answer counts", chart: message.Chart{URL: s.URL + "/none.tgz"}, text: "the server answers 404"},
		"a server in trouble":              {reason: "it may be well again", chart: message.Chart{URL: s.URL + "/broken.tgz"}, want: ErrUnavailable, text: "503"},
		"a redirect out of the list":       {reason: "the list is the owner's", chart: message.Chart{URL: s.URL + "/out.tgz"}, want: ErrNotAllowed, text: elsewhere.URL},
		"redirects without end":            {reason: "they are counted", chart: message.Chart{URL: s.URL + "/round.tgz"}, text: "stopped after 10 redirects"},
		"another server":                   {reason: "the list is the owner's", chart: message.Chart{URL: elsewhere.URL + "/web.tgz"}, want: ErrNotAllowed, text: "helm.charts"},
		"a text":                           {reason: "it is no archive", chart: message.Chart{URL: s.URL + "/text.tgz"}, want: ErrChart},
		"half an archive":                  {reason: "it was cut", chart: message.Chart{URL: s.URL + "/cut.tgz"}, want: ErrChart},
		"an empty archive":                 {reason: "it has no chart", chart: message.Chart{URL: s.URL + "/empty.tgz"}, want: ErrChart},
		"something else":                   {reason: "it has no Chart.yaml", chart: message.Chart{URL: s.URL + "/other.tgz"}, want: ErrChart, text: "Chart.yaml"},
		"a chart without a name":           {reason: "it has to have one", chart: message.Chart{URL: s.URL + "/noname.tgz"}, want: ErrChart, text: "name"},
		"a library":                        {reason: "nothing is installed of it", chart: message.Chart{URL: s.URL + "/library.tgz"}, want: ErrChart, text: "library"},
		"a chart without its parts":        {reason: "they are not looked for elsewhere", chart: message.Chart{URL: s.URL + "/parts.tgz"}, want: ErrChart, text: "db"},
		"a path that escapes":              {reason: "nothing is written, and it is refused all the same", chart: message.Chart{URL: s.URL + "/escape.tgz"}, want: ErrChart},
		"an absolute path":                 {reason: "as above", chart: message.Chart{URL: s.URL + "/absolute.tgz"}, want: ErrChart},
		"a bomb":                           {reason: "it is small only while it is packed", chart: message.Chart{URL: s.URL + "/bomb.tgz"}, want: ErrChart, text: "larger than the maximum size"},
		"a large archive":                  {reason: "memory is bounded", chart: message.Chart{URL: s.URL + "/large.tgz"}, want: ErrTooLarge, text: "8 MiB"},
		"another version":                  {reason: "it is not the one that was asked for", chart: message.Chart{URL: s.URL + "/web.tgz", Version: "2.0.0"}, want: ErrChart, text: "1.2.3, not 2.0.0"},
		"no version":                       {reason: "it says nothing", chart: message.Chart{URL: s.URL + "/web.tgz", Version: "new"}, want: ErrChart},
		"a version that is not there":      {reason: "the repository has another", chart: message.Chart{URL: s.URL + "/repo", Name: "web", Version: "9"}, text: "not in the repository"},
		"a chart that is not there":        {reason: "the repository has others", chart: message.Chart{URL: s.URL + "/repo", Name: "db"}, text: "not in the repository"},
		"another archive than the index's": {reason: "somebody has changed it", chart: message.Chart{URL: s.URL + "/repo", Name: "web"}, want: errDigest},
		"an index without URLs":            {reason: "nothing can be read", chart: message.Chart{URL: s.URL + "/repo", Name: "none"}, want: errIndex},
		"an index that leads up":           {reason: "a relative URL stays on the server, where nothing is", chart: message.Chart{URL: s.URL + "/repo", Name: "up"}, text: "404"},
		"an index that leads out":          {reason: "the list is the owner's", chart: message.Chart{URL: s.URL + "/repo", Name: "out"}, want: ErrNotAllowed},
		"no index":                         {reason: "it is something else", chart: message.Chart{URL: s.URL + "/html", Name: "web"}, want: errIndex},
		"no repository":                    {reason: "there is no index", chart: message.Chart{URL: s.URL + "/nowhere", Name: "web"}, text: "index of the repository: the server answers 404"},
		"a name":                           {reason: "Helm 2 looked for it in a list of its own", chart: message.Chart{URL: "stable/web"}, want: ErrURL},
		"a file":                           {reason: "there is none here", chart: message.Chart{URL: "file:///etc/passwd"}, want: ErrURL},
		"with a password":                  {reason: "it would stand in a status", chart: message.Chart{URL: "https://a:b@c/d.tgz"}, want: ErrURL},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := source(t, s.URL, nobody).Get(t.Context(), tc.chart)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, want %v with %q: %s", err, tc.want, tc.text, tc.reason)
			}
		})
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	s := server(t, map[string]http.HandlerFunc{"/web.tgz": sends(web(t, "1.2.3"))})
	allowed, err := ParseAllowed([]string{s.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewSource(allowed, false).Get(t.Context(), message.Chart{URL: s.URL + "/web.tgz"}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want an error of the certificate", err)
	}
}

func TestGetTimesOut(t *testing.T) {
	began := make(chan struct{})
	s := server(t, map[string]http.HandlerFunc{"/web.tgz": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := source(t, s.URL).Get(ctx, message.Chart{URL: s.URL + "/web.tgz"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
}

// cutOff is an HTTP connection whose answers end in good order while the request is
// cancelled.
type cutOff struct{ cancel func() }

func (c cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(c)}, nil
}

func (c cutOff) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}

func TestCancelledAnswerIsNotComplete(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &Source{client: &http.Client{Transport: cutOff{cancel}}}
	if got, err := s.Values(ctx, "https://charts.example.com/values.yaml"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %q, %v, want it cancelled", got, err)
	}
}

func TestParseValues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		raw    string
		want   map[string]any
	}{
		"none":      {reason: "a chart has defaults", want: map[string]any{}},
		"a comment": {reason: "it says nothing", raw: "# a: b", want: map[string]any{}},
		"a map":     {reason: "these are values", raw: "a: {b: 1}", want: map[string]any{"a": map[string]any{"b": float64(1)}}},
		"a text":    {reason: "it is no map", raw: "secret"},
		"a list":    {reason: "it is no map", raw: "[secret]"},
		"no YAML":   {reason: "it cannot be read", raw: "a: secret: b: ["},
		"a bomb of aliases": {reason: "it would not end", raw: "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseValues([]byte(tc.raw))
			if tc.want == nil {
				if !errors.Is(err, ErrValues) || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want %v and no value: %s", err, ErrValues, tc.reason)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s\n%s", err, diff, tc.reason)
			}
		})
	}
}

func TestValuesAreReadFromAllowedServer(t *testing.T) {
	s := server(t, map[string]http.HandlerFunc{"/values.yaml": sends([]byte("a: 1")), "/large.yaml": sends(make([]byte, maxValues+1))})
	if got, err := source(t, s.URL).Values(t.Context(), s.URL+"/values.yaml"); err != nil || string(got) != "a: 1" {
		t.Errorf("got %q, %v", got, err)
	}
	for location, want := range map[string]error{s.URL + "/large.yaml": ErrTooLarge, "https://c.example.com/v.yaml": ErrNotAllowed, "oci://c.example.com/v": ErrURL, "v.yaml": ErrURL} {
		if _, err := source(t, s.URL).Values(t.Context(), location); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", location, err, want)
		}
	}
}

func FuzzLoadArchive(f *testing.F) {
	f.Add(web(f, "1.2.3"))
	f.Add(archiveOf(f, files{"web/Chart.yaml": metadata + "type: library\n"}))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, err := loadArchive(raw); err == nil && (c.Metadata == nil || c.Metadata.Name == "") {
			t.Error("a chart without a name is taken")
		}
	})
}
