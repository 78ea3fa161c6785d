// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

func packed(t testing.TB, record string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(record)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return twice(b.String())
}

// twice is how Helm and then an API server encode.
func twice(s string) string {
	return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(s))))
}

func recordSecret(t testing.TB, namespace, release string, number int, record string) *unstructured.Unstructured {
	t.Helper()
	return secretOf(namespace, recordName(release, number), packed(t, record))
}

func secretOf(namespace, name string, data any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"status": "deployed"}},
		"data":     map[string]any{"release": data},
	}}
}

// redact is what a view shows of a Secret.
func shownOf(t *testing.T, obj *unstructured.Unstructured, spec wire.View) v1alpha1.HelmReleaseSpec {
	t.Helper()
	s := &viewSink{view: &view{engine: newEngine(t, newServer()), spec: spec}}
	raw, err := s.encodeRelease(obj, revision{namespace: "shop", release: "web", number: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > spec.MaxBytes-100 {
		t.Errorf("%d bytes have no room in a result of %d", len(raw), spec.MaxBytes)
	}
	var got v1alpha1.HelmRelease
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return got.Spec
}

func TestUnreadableRecordIsShownByName(t *testing.T) {
	whole := packed(t, `{"info":{"description":"Install complete"}}`)
	tests := map[string]struct {
		reason string
		data   any
	}{
		"nothing":            {reason: "somebody has emptied it", data: ""},
		"no text":            {reason: "an API server sends none", data: int64(1)},
		"no base64":          {reason: "somebody has edited it", data: "***"},
		"base64 once":        {reason: "somebody has edited it", data: base64.StdEncoding.EncodeToString([]byte(`{"info":{}}`))},
		"half of it":         {reason: "somebody has edited it", data: whole[:len(whole)/8*4]},
		"gzip without end":   {reason: "somebody has edited it", data: twice("\x1f\x8b\x08")},
		"gzip of no gzip":    {reason: "somebody has edited it", data: twice("\x1f\x8b\x08" + strings.Repeat("x", 100))},
		"no JSON":            {reason: "somebody has edited it", data: packed(t, "{")},
		"JSON and more":      {reason: "Helm would not read it", data: packed(t, "{}{}")},
		"a list":             {reason: "Helm would not read it", data: packed(t, "[]")},
		"types of another":   {reason: "a later Helm may write them", data: packed(t, `{"info":{"status":1}}`)},
		"a bomb":             {reason: "it is not unpacked", data: packed(t, `{"manifest":"`+strings.Repeat("a", 2*maxRecordSize)+`"}`)},
		"a little too large": {reason: "the bound is one", data: packed(t, `{"manifest":"`+strings.Repeat("a", maxRecordSize)+`"}`)},
	}
	want := v1alpha1.HelmReleaseSpec{
		ReleaseName: "web", Namespace: "shop", Version: 1, Status: "deployed", Description: "record of a release cannot be read",
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := shownOf(t, secretOf("shop", recordName("web", 1), tc.data), wire.View{MaxBytes: 512 << 10, Secrets: wire.SecretsShown})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecodeRecord(t *testing.T) {
	const maxBytes = 512 << 10
	named := v1alpha1.HelmReleaseSpec{ReleaseName: "web", Namespace: "shop", Version: 1}
	with := func(change func(*v1alpha1.HelmReleaseSpec)) v1alpha1.HelmReleaseSpec {
		s := named
		change(&s)
		return s
	}
	large := strings.Repeat("a", maxBytes)
	tests := map[string]struct {
		reason string
		data   string
		policy wire.SecretPolicy
		want   v1alpha1.HelmReleaseSpec
	}{
		"an empty record":         {reason: "the Secret names it", data: packed(t, "{}"), want: named},
		"an old record":           {reason: "Helm once packed none", data: twice(`{"info":{"status":"deployed"}}`), want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Status = "deployed" })},
		"another name":            {reason: "the Secret names it", data: packed(t, `{"name":"other","namespace":"elsewhere","version":9}`), want: named},
		"a time that is none":     {reason: "Helm has written empty ones", data: packed(t, `{"info":{"first_deployed":"","last_deployed":null}}`), want: named},
		"a manifest":              {reason: "it may have the values of Secrets", data: packed(t, `{"manifest":"password: needle"}`), want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = "***" })},
		"an empty manifest":       {reason: "there is nothing to hide", data: packed(t, `{"manifest":""}`), want: named},
		"no manifest":             {reason: "there is nothing to hide", data: packed(t, `{"manifest":null}`), want: named},
		"a manifest, shown":       {reason: "an option of the hub", data: packed(t, `{"manifest":"password: <needle>\n"}`), policy: wire.SecretsShown, want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = "password: <needle>\n" })},
		"two manifests":           {reason: "the last one counts", data: packed(t, `{"manifest":"a","manifest":"b"}`), policy: wire.SecretsShown, want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = "b" })},
		"a large manifest":        {reason: "it is masked as any other", data: packed(t, `{"manifest":"`+large+`"}`), want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = "***" })},
		"a large manifest, shown": {reason: "the release would have no room with it", data: packed(t, `{"manifest":"`+large+`"}`), policy: wire.SecretsShown, want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = message.Omitted })},
		"one that grows":          {reason: "the release would have no room with it", data: packed(t, `{"manifest":"`+strings.Repeat("<", maxBytes/2)+`"}`), policy: wire.SecretsShown, want: with(func(s *v1alpha1.HelmReleaseSpec) { s.Manifest = message.Omitted })},
		"the values":              {reason: "they are in no result", data: packed(t, `{"config":{"password":"needle"},"chart":{"values":{"a":"needle"}}}`), policy: wire.SecretsShown, want: named},
		"long words": {
			reason: "whoever may write Secrets writes them", data: packed(t, `{"info":{"status":"`+large+`","description":"`+strings.Repeat("ä", maxBytes)+`"},"chart":{"metadata":{"name":"`+large+`","version":"`+large+`"}}}`),
			want: with(func(s *v1alpha1.HelmReleaseSpec) {
				word := large[:maxName-3] + "..."
				s.Status, s.ChartName, s.ChartVersion, s.Description = word, word, word, strings.Repeat("ä", (maxDescription-3)/2)+"..."
			}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := shownOf(t, secretOf("shop", recordName("web", 1), tc.data), wire.View{MaxBytes: maxBytes, Secrets: tc.policy})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%.2000s", tc.reason, diff)
			}
		})
	}
}

func TestDecompressBoundsMemory(t *testing.T) {
	data := packed(t, strings.Repeat(" ", 2*maxRecordSize))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decompress(data)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; err == nil || taken > 1<<20 {
		t.Errorf("%d bytes are taken: %v", taken, err)
	}
}

// FuzzRecord compares with how Helm reads a record (helm.sh/helm/v4/pkg/storage/driver).
func FuzzRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte, most int) {
		most = min(max(most, 0), 1<<10)
		got, err := decodeRecord(secretOf("shop", "a", twice(string(raw))), most)
		if len(got.Manifest.text) > most {
			t.Errorf("%d bytes of a manifest, want %d at most", len(got.Manifest.text), most)
		}
		if bytes.HasPrefix(raw, []byte{0x1f, 0x8b, 0x08}) {
			r, gzipErr := gzip.NewReader(bytes.NewReader(raw))
			if gzipErr == nil {
				raw, gzipErr = io.ReadAll(r)
			}
			if gzipErr != nil {
				if err == nil {
					t.Errorf("read, and Helm says %v", gzipErr)
				}
				return
			}
		}
		var want struct {
			Info struct {
				Status string `json:"status"`
			} `json:"info"`
			Manifest string `json:"manifest"`
		}
		wantErr := json.Unmarshal(raw, &want)
		if err != nil || wantErr != nil {
			return // Helm reads more fields, and we take more for a time
		}
		if got.Info.Status != want.Info.Status || got.Manifest.text != "" && got.Manifest.text != want.Manifest {
			t.Errorf("%+v, Helm reads %+v", got, want)
		}
		if got.Manifest.present != (want.Manifest != "") {
			t.Errorf("a manifest is there: %t, Helm reads %q", got.Manifest.present, want.Manifest)
		}
	})
}
