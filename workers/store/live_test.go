// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"github.com/spokelet/spokelet/workers/script"
)

// realStore is a real store, of which the tests use what is below an id of their own, or the test
// is skipped.
func realStore(t *testing.T) (config Config, account string) {
	t.Helper()
	config = Config{
		Endpoint: os.Getenv("SPOKELET_S3_ENDPOINT"), Bucket: os.Getenv("SPOKELET_S3_BUCKET"), Region: os.Getenv("SPOKELET_S3_REGION"),
		AccessKey: os.Getenv("SPOKELET_S3_ACCESS_KEY"), SecretKey: os.Getenv("SPOKELET_S3_SECRET_KEY"),
	}
	if config.Endpoint == "" {
		t.Skip("SPOKELET_S3_ENDPOINT is not set: there is no real store")
	}
	return config, fmt.Sprintf("test-%d", time.Now().UnixNano())
}

// put writes objects of an account, in a bucket that it makes where there is none.
func put(t *testing.T, s *Store, account string, objects map[string]string) {
	t.Helper()
	err := s.client.MakeBucket(t.Context(), s.config.Bucket, minio.MakeBucketOptions{Region: s.config.Region})
	if code := minio.ToErrorResponse(err).Code; err != nil && code != minio.BucketAlreadyOwnedByYou {
		t.Fatal(err)
	}
	for key, content := range objects {
		if err := s.Put(t.Context(), account, key, "application/javascript+module", []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRealStoreListAndFetch(t *testing.T) {
	config, account := realStore(t)
	s := newStore(t, config)
	objects := map[string]string{}
	for i := range 30 {
		objects[fmt.Sprintf("%s/s/1/m%02d.js", account, i)] = strings.Repeat("x", i*1000)
	}
	objects[account+"/s/1/lib/é +%.js"] = "umlaut"
	objects[account+"/s/10/other.js"] = "other"
	put(t, s, account, objects)
	modules, err := s.List(t.Context(), account, []string{account + "/s/1/"})
	if err != nil || len(modules) != 31 {
		t.Fatalf("%d modules, %v", len(modules), err)
	}
	for _, m := range modules {
		var got bytes.Buffer
		if err := s.Fetch(t.Context(), account, script.Module{Name: m.Name, Key: m.Key, ETag: m.ETag, Size: m.Size}, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(objects[m.Key], got.String()); diff != "" || m.Name != strings.TrimPrefix(m.Key, account+"/s/1/") {
			t.Errorf("%+v\n%s", m, diff)
		}
	}
	one, err := s.List(t.Context(), account, []string{"s3://" + config.Bucket + "/" + account + "/s/10/other.js"})
	if err != nil || len(one) != 1 || one[0].Name != "other.js" || one[0].Size != 5 {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestRealStoreErrorsAreClassified(t *testing.T) {
	config, account := realStore(t)
	s := newStore(t, config)
	key := account + "/s/1/index.js"
	put(t, s, account, map[string]string{key: "old"})
	listed, err := s.List(t.Context(), account, []string{account + "/s/1"})
	if err != nil || len(listed) != 1 {
		t.Fatalf("%+v, %v", listed, err)
	}
	m := script.Module{Name: "index.js", Key: key, ETag: listed[0].ETag, Size: listed[0].Size}
	put(t, s, account, map[string]string{key: "new"})
	if err := s.Fetch(t.Context(), account, m, io.Discard); !errors.Is(err, ErrChanged) {
		t.Errorf("an object that was written again: %v", err)
	}
	if err := s.client.RemoveObject(t.Context(), config.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Fetch(t.Context(), account, m, io.Discard); !errors.Is(err, ErrMissing) {
		t.Errorf("an object that is gone: %v", err)
	}
	if _, err := s.List(t.Context(), account, []string{account + "/s/1"}); !errors.Is(err, ErrMissing) {
		t.Errorf("a prefix that is empty: %v", err)
	}
	wrong := config
	wrong.SecretKey = "wrong"
	if _, err := newStore(t, wrong).List(t.Context(), account, []string{account + "/s/1"}); !errors.Is(err, ErrDenied) {
		t.Errorf("a wrong key: %v", err)
	}
	wrong = config
	wrong.Bucket = "there-is-no-such-bucket"
	if _, err := newStore(t, wrong).List(t.Context(), account, []string{account + "/s/1"}); !errors.Is(err, ErrDenied) {
		t.Errorf("a wrong bucket: %v", err)
	}
}
