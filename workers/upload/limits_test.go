// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

var errGone = errors.New("connection reset by peer")

// cut returns bodies that end after so many bytes, in the ways in which readers end.
func cut(body []byte, end int) map[string]io.Reader {
	return map[string]io.Reader{
		"the end":             bytes.NewReader(body[:end]),
		"the end with data":   iotest.DataErrReader(bytes.NewReader(body[:end])),
		"an unexpected end":   io.MultiReader(bytes.NewReader(body[:end]), iotest.ErrReader(io.ErrUnexpectedEOF)),
		"an error":            io.MultiReader(bytes.NewReader(body[:end]), iotest.ErrReader(errGone)),
		"an error, with data": iotest.DataErrReader(io.MultiReader(bytes.NewReader(body[:end]), iotest.ErrReader(errGone))),
	}
}

// TestTruncatedUploadIsIncomplete, wherever it is cut: mime/multipart takes a body that ends after the line
// before a part for a whole one, and modules would be missing.
func TestTruncatedUploadIsIncomplete(t *testing.T) {
	for _, name := range []string{"modules.form", "serviceworker.form", "secrets.form", "nobundle.form"} {
		kind, body := recorded(t, name)
		whole := bytes.LastIndex(body, []byte("--")) // what follows the last boundary says that it was the last
		for end := range whole + 2 {
			for how, from := range cut(body, end) {
				up, err := Read(kind, from, Limits{MaxModules: 10, MaxBytes: 4 << 10}, &memory{})
				bad, malformed := errors.AsType[*Error](err)
				if up != nil || !errors.Is(err, ErrIncomplete) && (!malformed || bad.Kind != Malformed) {
					t.Fatalf("%s: %s after %d bytes: got %+v, %v", name, how, end, up, err)
				}
				if strings.HasPrefix(how, "an error") && !errors.Is(err, errGone) {
					t.Fatalf("%s: %s after %d bytes: the error of the body is lost: %v", name, how, end, err)
				}
			}
		}
	}
}

// TestFinalLineBreakIsOptional, as RFC 2046 has it.
func TestFinalLineBreakIsOptional(t *testing.T) {
	kind, body := form(t, with(``), module, part{"motto.txt", release.TypeText, "x"})
	want, err := Read(kind, bytes.NewReader(body), limits, &memory{})
	if err != nil {
		t.Fatal(err)
	}
	for how, from := range map[string]io.Reader{
		"no line break":   bytes.NewReader(bytes.TrimSuffix(body, []byte("\r\n"))),
		"byte by byte":    iotest.OneByteReader(bytes.NewReader(body)),
		"an epilogue":     io.MultiReader(bytes.NewReader(body), strings.NewReader("what follows is ignored")),
		"a preamble":      io.MultiReader(strings.NewReader("this is a form\r\n"), bytes.NewReader(body)),
		"the end at once": iotest.DataErrReader(bytes.NewReader(body)),
	} {
		got, err := Read(kind, from, limits, &memory{})
		if err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}

// endless repeats a text, and counts the bytes.
type endless struct {
	text string
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[(e.read+int64(i))%int64(len(e.text))]
	}
	e.read += int64(len(p))
	return len(p), nil
}

// numbered writes parts without end, each of another name. It allocates nothing meanwhile.
type numbered struct {
	content []byte
	next    int
	head    []byte
	rest    []byte
	read    int64
}

func (n *numbered) Read(p []byte) (int, error) {
	if len(n.rest) == 0 {
		n.next++
		n.head = fmt.Appendf(n.head[:0], "\r\n--b\r\nContent-Disposition: form-data; name=\"%d\"\r\n", n.next)
		n.rest = n.head
		if n.next%2 == 0 {
			n.rest = n.content
		}
	}
	count := copy(p, n.rest)
	n.rest = n.rest[count:]
	n.read += int64(count)
	return count, nil
}

const begin = "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n"

// TestHostileUploadIsLimited in what is read of it, and in all that is allocated for it: no
// more can have been in memory at any moment.
func TestHostileUploadIsLimited(t *testing.T) {
	most := Limits{MaxModules: 200, MaxBytes: 4 << 20}
	const entry = "--b\r\nContent-Disposition: form-data; name=\"index.js\"\r\nContent-Type: application/javascript+module\r\n\r\nx\r\n"
	metadata := func(start, middle string) io.Reader {
		// One MiB of JSON that is whole, so that it is parsed.
		head := fmt.Sprintf(begin, metadataPart) + "\r\n" + start
		return strings.NewReader(head + many((maxMetadata-len(start)-4)/(len(middle)+1), middle) + "]}\r\n" + entry + "--b--\r\n")
	}
	var fields strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&fields, `"%d":0,`, i)
	}
	for name, test := range map[string]struct {
		reason string
		start  string
		more   io.Reader
		kind   Kind
		want   string
	}{
		"a module":            {"beyond the limit", fmt.Sprintf(begin, "a") + "\r\n", &endless{text: "x"}, TooLarge, "the script has more than 4 MiB, which is the limit"},
		"many modules":        {"beyond the limit, together", "", &numbered{content: []byte("\r\n" + strings.Repeat("x", 100<<10))}, TooLarge, "the script has more than 4 MiB, which is the limit"},
		"small modules":       {"more than there may be", "", &numbered{content: []byte("\r\n")}, TooLarge, "the script has more than 200 modules, which is the limit"},
		"a source map":        {"it is not kept, but read", fmt.Sprintf(begin, "a") + "Content-Type: application/source-map\r\n\r\n", &endless{text: "x"}, TooLarge, "the source maps have more than 4 MiB, which is the limit"},
		"source maps":         {"they are no modules", "", &numbered{content: []byte("Content-Type: application/source-map\r\n\r\n")}, TooLarge, "the upload has more than 208 parts, which is the limit"},
		"metadata":            {"beyond the limit", fmt.Sprintf(begin, metadataPart) + "\r\n", &endless{text: "x"}, TooLarge, "the metadata has more than 1 MiB, which is the limit"},
		"a line of a header":  {"mime/multipart has 10 MiB", fmt.Sprintf(begin, "a"), &endless{text: "x"}, Malformed, ""},
		"lines of a header":   {"mime/multipart has 10 MiB", fmt.Sprintf(begin, "a"), &endless{text: "a: x\r\n"}, Malformed, ""},
		"a long preamble":     {"mime/multipart has no limit", "", &endless{text: "x\r\n"}, Malformed, ""},
		"a preamble's line":   {"mime/multipart has a limit", "", &endless{text: "x"}, Malformed, ""},
		"bindings":            {"a struct is larger than {}", "", metadata(`{"main_module":"index.js","bindings":[`, "{}"), Malformed, "the metadata: bindings has more than 128 elements, which is the limit"},
		"flags":               {"a string is larger than its quotes", "", metadata(`{"main_module":"index.js","compatibility_flags":[`, `""`), Malformed, "the metadata: compatibility_flags has more than 64 elements, which is the limit"},
		"types that are kept": {"a string is larger than its quotes", "", metadata(`{"main_module":"index.js","keep_bindings":[`, `""`), Malformed, "the metadata: keep_bindings has more than 64 elements, which is the limit"},
		"fields":              {"an entry of a map is larger than a field", "", metadata(`{`+fields.String()+`"a":[`, "0"), Malformed, "the metadata has more than 64 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			// The reader of a test would count as well.
			body := io.MultiReader(strings.NewReader(test.start), test.more)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			held := &memory{}
			_, err := Read("multipart/form-data; boundary=b", body, most, held)
			runtime.ReadMemStats(&after)
			bad, ok := errors.AsType[*Error](err)
			if !ok || bad.Kind != test.kind || test.want != "" && bad.Problem != test.want {
				t.Errorf("%s: got %v, want kind %d, %s", test.reason, err, test.kind, test.want)
			}
			// A buffer that doubles allocates twice what it has in the end.
			if got := after.TotalAlloc - before.TotalAlloc; got > uint64(3*most.MaxBytes)+2<<20 {
				t.Errorf("%s: %d bytes were allocated", test.reason, got)
			}
			if held.peak > most.Peak() {
				t.Errorf("%s: %d bytes were in memory, of at most %d", test.reason, held.peak, most.Peak())
			}
			var read int64
			switch more := test.more.(type) {
			case *endless:
				read = more.read
			case *numbered:
				read = more.read
			}
			if read > most.MaxBytes+256<<10 {
				t.Errorf("%s: %d bytes were read", test.reason, read)
			}
		})
	}
}

// stalled is the beginning of an upload, and then nothing.
type stalled struct {
	io.Reader
	then func()
}

func (s *stalled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		s.then()
	}
	return n, err
}

// TestUploadMemoryFollowsReceivedBytes, and when it was read that of its modules.
func TestUploadMemoryFollowsReceivedBytes(t *testing.T) {
	most := Limits{MaxModules: 10, MaxBytes: 16 << 20}
	for name, size := range map[string]int{"nothing": 0, "a byte": 1, "100 KiB": 100 << 10, "3 MiB": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			held := &memory{}
			var then int64
			body := &stalled{strings.NewReader(fmt.Sprintf(begin, "a") + "\r\n" + strings.Repeat("x", size)), func() { then = held.held }}
			if _, err := Read("multipart/form-data; boundary=b", body, most, held); !errors.Is(err, ErrIncomplete) {
				t.Fatalf("got %v", err)
			}
			if limit := int64(2*size + smallPart); then > limit || held.held != 0 {
				t.Errorf("it has %d bytes of at most %d, and %d when it has ended", then, limit, held.held)
			}
		})
	}
	kind, body := form(t, with(``), module, part{"large.bin", release.TypeData, strings.Repeat("l", 3<<20)}, part{"more.bin", release.TypeData, strings.Repeat("m", 5<<20)})
	held := &memory{}
	if _, err := Read(kind, bytes.NewReader(body), most, held); err != nil {
		t.Fatal(err)
	}
	if least := int64(8 << 20); held.held < least || held.held > least+1<<10 || held.peak > most.Peak() {
		t.Errorf("when it was read it has %d bytes, and had %d", held.held, held.peak)
	}
	for limit := int64(1); limit < held.peak; limit += held.peak / 7 {
		tight := &memory{most: limit}
		if up, err := Read(kind, bytes.NewReader(body), most, tight); up != nil || !errors.Is(err, ErrMemory) || !errors.Is(err, errFull) {
			t.Errorf("with %d bytes: got %v, %v", limit, up, err)
		}
	}
}

// TestUploadMayReachLimits, and none of its modules shares memory that another can grow
// into.
func TestUploadMayReachLimits(t *testing.T) {
	most := Limits{MaxModules: 3, MaxBytes: 2 << 20}
	large := strings.Repeat("l", 2<<20-smallPart/2-len(module.content))
	middle := strings.Repeat("m", smallPart/2)
	parts := []part{with(``), {"middle.txt", release.TypeText, middle}, {"large.bin", release.TypeData, large}, module, {"index.js.map", typeSourceMap, strings.Repeat("s", 2<<20)}}
	kind, body := form(t, parts...)
	up, err := Read(kind, bytes.NewReader(body), most, &memory{})
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{"index.js", release.TypeESModule, []byte(module.content)}, {"large.bin", release.TypeData, []byte(large)}, {"middle.txt", release.TypeText, []byte(middle)}}
	for i := range up.Files {
		_ = append(up.Files[i].Content, "overwritten"...)
	}
	same := func(a, b File) bool { return a.Name == b.Name && a.Type == b.Type && bytes.Equal(a.Content, b.Content) }
	if !slices.EqualFunc(want, up.Files, same) {
		t.Error("the modules are not those that were sent")
	}
	for reason, more := range map[string]Limits{
		"one byte too many":   {MaxModules: 3, MaxBytes: 2<<20 - 1},
		"one module too many": {MaxModules: 2, MaxBytes: 2 << 20},
		"no limits":           {},
		"a negative limit":    {MaxModules: -1, MaxBytes: -1},
	} {
		_, err := Read(kind, bytes.NewReader(body), more, &memory{})
		if bad, ok := errors.AsType[*Error](err); !ok || bad.Kind != TooLarge {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}
