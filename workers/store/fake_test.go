// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const bucket = "scripts"

// fakeS3 is as much of S3 as is needed to see how its answers are taken. What real stores
// answer is tested in live_test.go.
type fakeS3 struct {
	objects map[string]string
	// page is how many objects are listed at a time.
	page int
	// fault answers instead.
	fault func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	asked []string // guarded by mu
}

// start serves it, and returns a Store of it.
func (f *fakeS3) start(t *testing.T, change ...func(*Config)) *Store {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	config := Config{Endpoint: server.URL, Bucket: bucket, AccessKey: "access", SecretKey: "hidden"}
	for _, apply := range change {
		apply(&config)
	}
	return newStore(t, config)
}

func newStore(t *testing.T, config Config) *Store {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func etag(content string) string {
	sum := md5.Sum([]byte(content))
	return hex.EncodeToString(sum[:])
}

// requests are the paths and prefixes that were asked for.
func (f *fakeS3) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/"+bucket), "/")
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+key+r.URL.Query().Get("prefix"))
	f.mu.Unlock()
	if f.fault != nil && f.fault(w, r) {
		return
	}
	if r.URL.Query().Get("list-type") == "2" {
		f.list(w, r)
		return
	}
	content, there := f.objects[key]
	if !there {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != `"`+etag(content)+`"` {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	w.Header().Set("ETag", `"`+etag(content)+`"`)
	w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodGet {
		fmt.Fprint(w, content)
	}
}

// list answers a page of a listing; what comes next is named by the last key.
func (f *fakeS3) list(w http.ResponseWriter, r *http.Request) {
	type object struct {
		Key          string `xml:"Key"`
		ETag         string `xml:"ETag"`
		LastModified string `xml:"LastModified"`
		Size         int    `xml:"Size"`
	}
	var result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool     `xml:"IsTruncated"`
		NextContinuationToken string   `xml:"NextContinuationToken"`
		Contents              []object `xml:"Contents"`
	}
	after := r.URL.Query().Get("continuation-token")
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasPrefix(key, r.URL.Query().Get("prefix")) || key <= after {
			continue
		}
		if f.page > 0 && len(result.Contents) == f.page {
			result.IsTruncated, result.NextContinuationToken = true, result.Contents[f.page-1].Key
			break
		}
		content := f.objects[key]
		result.Contents = append(result.Contents, object{key, `"` + etag(content) + `"`, "2026-01-01T00:00:00Z", len(content)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(result)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>m</Message><RequestId>1</RequestId></Error>", code)
}
