// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/agent/helm/message"
)

// fakeRegistry is one: it serves one artefact of charts/web, by tag and by digest.
func fakeRegistry(t *testing.T, versions ...string) (host string, digests map[string]string) {
	t.Helper()
	content, digests := map[string][]byte{}, map[string]string{}
	add := func(raw []byte) (digest string) {
		sum := sha256.Sum256(raw)
		digest = "sha256:" + hex.EncodeToString(sum[:])
		content[digest] = raw
		return digest
	}
	for _, version := range versions {
		raw := web(t, version)
		manifest, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
			"config": map[string]any{"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": add([]byte("{}")), "size": 2},
			"layers": []any{map[string]any{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": add(raw), "size": len(raw)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		digests[versionTag(version)] = add(manifest)
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if digest, ok := digests[name]; ok {
			name = digest
		}
		raw, ok := content[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		}
		w.Header().Set("Docker-Content-Digest", name)
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		_, _ = w.Write(raw)
	}
	s := server(t, map[string]http.HandlerFunc{
		"/v2/": http.NotFound,
		"/v2/charts/web/tags/list": func(w http.ResponseWriter, _ *http.Request) {
			var tags []string
			for tag := range digests {
				tags = append(tags, tag)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"name": "charts/web", "tags": append(tags, "latest")})
		},
		"/v2/charts/web/manifests/{name}": serve,
		"/v2/charts/web/blobs/{name}":     serve,
	})
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host, digests
}

func TestGetFromRegistry(t *testing.T) {
	host, digests := fakeRegistry(t, "1.2.3", "2.0.0+build", "1.10.0")
	for name, tc := range map[string]struct {
		reason string
		chart  message.Chart
		want   string
		err    string
	}{
		"by tag":                   {reason: "the usual way", chart: message.Chart{URL: "/charts/web:1.2.3"}, want: "1.2.3"},
		"by digest":                {reason: "it is this one for good", chart: message.Chart{URL: "/charts/web@" + digests["1.2.3"]}, want: "1.2.3"},
		"by tag and digest":        {reason: "the digest counts", chart: message.Chart{URL: "/charts/web:1.10.0@" + digests["1.2.3"]}, want: "1.2.3"},
		"by version":               {reason: "it is the tag", chart: message.Chart{URL: "/charts/web", Version: "1.2.3"}, want: "1.2.3"},
		"by a version with a plus": {reason: "no tag has one", chart: message.Chart{URL: "/charts/web", Version: "2.0.0+build"}, want: "2.0.0+build"},
		"by range":                 {reason: "the latest of them", chart: message.Chart{URL: "/charts/web", Version: "^1.0.0"}, want: "1.10.0"},
		"the latest":               {reason: "no version is asked for", chart: message.Chart{URL: "/charts/web"}, want: "2.0.0+build"},
		"of a repository":          {reason: "the name is the end of the path", chart: message.Chart{URL: "/charts", Name: "web", Version: "1.2.3"}, want: "1.2.3"},
		"a tag that is not there":  {reason: "it is named", chart: message.Chart{URL: "/charts/web:9.9.9"}, err: "9.9.9"},
		"a range without any":      {reason: "it is named", chart: message.Chart{URL: "/charts/web", Version: "^9"}, err: "^9"},
		"no digest":                {reason: "it names nothing", chart: message.Chart{URL: "/charts/web@sha256:abc"}, err: "digest"},
		"another repository":       {reason: "the list is the owner's", chart: message.Chart{URL: "/other/web:1.2.3"}, err: "helm.charts"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.chart.URL = "oci://" + host + tc.chart.URL
			got, err := source(t, "oci://"+host+"/charts").Get(t.Context(), tc.chart)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want an error with %q: %s", err, tc.err, tc.reason)
				}
				return
			}
			if err != nil || got.Metadata.Version != tc.want {
				t.Errorf("got %v, %v, want version %s: %s", got, err, tc.want, tc.reason)
			}
		})
	}
}

// artefact serves charts/web:1.2.3 of one layer. Its layer may be said to be another, and
// some paths may answer otherwise.
func artefact(t *testing.T, layer map[string]any, instead map[string]http.HandlerFunc) (host string) {
	t.Helper()
	raw := web(t, "1.2.3")
	sum := sha256.Sum256(raw)
	said := map[string]any{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": "sha256:" + hex.EncodeToString(sum[:]), "size": len(raw)}
	maps.Copy(said, layer)
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": said, "layers": []any{said}})
	if err != nil {
		t.Fatal(err)
	}
	sum = sha256.Sum256(manifest)
	paths := map[string]http.HandlerFunc{
		"/v2/charts/web/manifests/1.2.3": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", "sha256:"+hex.EncodeToString(sum[:]))
			_, _ = w.Write(manifest)
		},
		"/v2/charts/web/blobs/{digest}": sends(raw),
		"/storage/web.tgz":              sends(raw),
	}
	maps.Copy(paths, instead)
	u, err := url.Parse(server(t, paths).URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func TestRegistryRedirectsAreChecked(t *testing.T) {
	const manifest, blob = "/v2/charts/web/manifests/1.2.3", "/v2/charts/web/blobs/{digest}"
	away := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+r.Host+"/storage/web.tgz", http.StatusTemporaryRedirect)
	}
	asksForToken := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "Bearer anybody" {
				next(w, r)
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+r.Host+`/token",service="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	token := map[string]http.HandlerFunc{
		blob: asksForToken(sends(web(t, "1.2.3"))), "/token": sends([]byte(`{"token":"anybody"}`)),
	}
	for name, tc := range map[string]struct {
		reason  string
		layer   map[string]any
		instead map[string]http.HandlerFunc
		allowed string
		want    error
		text    string
	}{
		"it is as it should be":                {reason: "it is read"},
		"an archive that is elsewhere":         {reason: "the list is the owner's, and the error says what to add", instead: map[string]http.HandlerFunc{blob: away}, want: ErrNotAllowed, text: "/storage/web.tgz"},
		"an archive that is elsewhere allowed": {reason: "registries keep their blobs in stores of objects", instead: map[string]http.HandlerFunc{blob: away}, allowed: "/storage"},
		"a token from elsewhere":               {reason: "a registry may not have the process ask anybody", instead: token, want: ErrNotAllowed, text: "/token"},
		"a token from elsewhere allowed":       {reason: "registries want a token of who is nobody", instead: token, allowed: "/token"},
		"it is no chart":                       {reason: "images are artefacts too", layer: map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}, want: errNotChart},
		"another digest":                       {reason: "it is not what the manifest names", layer: map[string]any{"digest": "sha256:" + strings.Repeat("0", 64)}, text: "mismatch"},
		"no digest":                            {reason: "the manifest is a stranger's", layer: map[string]any{"digest": "../../secret"}, want: ErrURL},
		"another size":                         {reason: "it is not what the manifest names", layer: map[string]any{"size": 10}, text: "mismatch"},
		"too large":                            {reason: "memory is bounded", layer: map[string]any{"size": maxArchive + 1}, want: ErrTooLarge},
		"a negative size":                      {reason: "the manifest is a stranger's", layer: map[string]any{"size": -1}, text: "mismatch"},
		"a manifest that is none":              {reason: "it is something else", instead: map[string]http.HandlerFunc{manifest: sends([]byte("<html>"))}, text: "manifest of 1.2.3"},
		"a manifest without end":               {reason: "memory is bounded", instead: map[string]http.HandlerFunc{manifest: sends(make([]byte, maxManifest+1))}, text: "manifest of 1.2.3"},
		"a registry in trouble": {reason: "it may be well again", want: ErrUnavailable, text: "500", instead: map[string]http.HandlerFunc{
			manifest: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			host := artefact(t, tc.layer, tc.instead)
			allowed := []string{"oci://" + host + "/charts"}
			if tc.allowed != "" {
				allowed = append(allowed, "https://"+host+tc.allowed)
			}
			_, err := source(t, allowed...).Get(t.Context(), message.Chart{URL: "oci://" + host + "/charts/web:1.2.3"})
			if failed := tc.want != nil || tc.text != ""; (err != nil) != failed {
				t.Fatalf("got %v: %s", err, tc.reason)
			}
			if err != nil && (tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text)) {
				t.Errorf("got %v, want %v with %q: %s", err, tc.want, tc.text, tc.reason)
			}
		})
	}
}
