// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/httpclient"
	"github.com/spokelet/spokelet/workers/script"
)

// maxAttempts of a request: an error is to be said within seconds.
const maxAttempts = 3

// Store is a bucket. Its methods may be called concurrently.
type Store struct {
	config    Config
	client    minio.Core
	transport *http.Transport
}

// New returns a Store. It sends no request.
func New(config Config) (*Store, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	endpoint, err := config.endpoint()
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	transport, err := httpclient.NewTransport(config.CA, config.AnswerTimeout, maxConnections)
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	transport.DisableCompression = true // modules are read as they are stored
	var through http.RoundTripper = transport
	if config.Wrap != nil {
		through = config.Wrap(transport)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:      credentials.NewStaticV4(config.AccessKey, config.SecretKey, ""),
		Secure:     endpoint.Scheme == "https",
		Region:     config.Region,
		Transport:  through,
		MaxRetries: maxAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	return &Store{config: config, client: minio.Core{Client: client}, transport: transport}, nil
}

// Close closes connections that are not in use.
func (s *Store) Close() { s.transport.CloseIdleConnections() }

// List returns the modules at the URLs of an account, ordered by name: of each URL the
// objects below it or, if there is none, the object of that name.
func (s *Store) List(ctx context.Context, account string, urls []string) ([]release.Module, error) {
	within, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	found := moduleSet{limit: s.config.MaxModules, byName: map[string]release.Module{}}
	for _, url := range urls {
		key, err := script.Prefix(url, s.config.Bucket, account)
		if err != nil {
			return nil, err
		}
		key = strings.TrimSuffix(key, "/")
		if err := checkPrefix(account, key); err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		if err := s.findModules(within, key, &found); err != nil {
			return nil, fmt.Errorf("%s: %w", url, s.classifyListError(ctx, err))
		}
	}
	if limit := s.config.MaxBytes; found.bytes > limit {
		return nil, fmt.Errorf("%w: it has %s MiB, and the limit is %s MiB", ErrTooLarge, formatMebibytes(found.bytes), formatMebibytes(limit))
	}
	return found.sorted(), nil
}

// packageError is an error of this package already.
type packageError struct{ error }

// Unwrap returns the error.
func (r packageError) Unwrap() error { return r.error }

// classifyListError leaves refusals as they are.
func (s *Store) classifyListError(ctx context.Context, err error) error {
	if r, ok := errors.AsType[packageError](err); ok {
		return r.error
	}
	return classify(ctx, err)
}

// findModules adds what is below a key, or else at it.
func (s *Store) findModules(ctx context.Context, key string, to *moduleSet) error {
	below := key + "/"
	before := to.seen
	for object := range s.client.ListObjectsIter(ctx, s.config.Bucket, minio.ListObjectsOptions{Prefix: below, Recursive: true}) {
		if object.Err != nil {
			return object.Err
		}
		name, is := strings.CutPrefix(object.Key, below)
		if !is || strings.HasSuffix(object.Key, "/") {
			continue // a folder, as some stores have them
		}
		if err := to.add(name, object); err != nil {
			return packageError{err}
		}
	}
	// The client ends a listing without an error when its context does.
	if err := ctx.Err(); err != nil {
		return err
	}
	if to.seen > before {
		return nil
	}
	object, err := s.client.StatObject(ctx, s.config.Bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return err
	}
	object.Key = key
	if err := to.add(path.Base(key), object); err != nil {
		return packageError{err}
	}
	return nil
}

// moduleSet are those that were found so far.
type moduleSet struct {
	limit  int
	seen   int
	bytes  int64
	byName map[string]release.Module
}

// add takes an object. Two URLs may name the same one.
func (m *moduleSet) add(name string, object minio.ObjectInfo) error {
	m.seen++
	if other, taken := m.byName[name]; taken {
		if other.Key == object.Key {
			return nil
		}
		return fmt.Errorf("%w: module %q is %s and %s", ErrDuplicate, name, other.Key, object.Key)
	}
	if len(m.byName) == m.limit {
		return fmt.Errorf("%w: it has more than %d modules", ErrTooLarge, m.limit)
	}
	m.byName[name] = release.Module{Name: name, Key: object.Key, ETag: object.ETag, Size: object.Size}
	m.bytes += object.Size
	return nil
}

func (m *moduleSet) sorted() []release.Module {
	list := make([]release.Module, 0, len(m.byName))
	for _, module := range m.byName {
		list = append(list, module)
	}
	slices.SortFunc(list, func(a, b release.Module) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func formatMebibytes(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }

// checkPrefix returns an error if a key is not below the id of an account. A store that keeps objects
// as files may resolve "..".
func checkPrefix(account, key string) error {
	rest, below := strings.CutPrefix(key, account+"/")
	if account == "" || strings.Contains(account, "/") || !below {
		return ErrForeign
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w: it has the part %q", ErrForeign, part)
		}
	}
	return nil
}

// Fetch writes a module as it was listed. After an error the written bytes are invalid.
func (s *Store) Fetch(ctx context.Context, account string, m script.Module, to io.Writer) error {
	if err := s.fetch(ctx, account, m, to); err != nil {
		return fmt.Errorf("module %q (%s): %w", m.Name, m.Key, err)
	}
	return nil
}

func (s *Store) fetch(ctx context.Context, account string, m script.Module, to io.Writer) error {
	if err := checkPrefix(account, m.Key); err != nil {
		return err
	}
	if m.Size < 0 || m.Size > s.config.MaxBytes {
		return fmt.Errorf("%w: the module has %s MiB, and the limit is %s MiB", ErrTooLarge, formatMebibytes(m.Size), formatMebibytes(s.config.MaxBytes))
	}
	var options minio.GetObjectOptions
	if err := options.SetMatchETag(m.ETag); err != nil {
		return fmt.Errorf("%w: it has no ETag", ErrChanged)
	}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(s.config.Timeout, cancel)
	defer patience.Stop()
	body, object, _, err := s.client.GetObject(within, s.config.Bucket, m.Key, options)
	if err != nil {
		return classify(ctx, err)
	}
	defer body.Close()
	// Some stores do not know If-Match.
	if object.ETag != m.ETag {
		return ErrChanged
	}
	out := &errorWriter{to: to}
	in := &timedReader{from: body, timer: patience, timeout: s.config.AnswerTimeout}
	read, err := io.Copy(out, io.LimitReader(in, m.Size+1))
	switch {
	case out.err != nil:
		return fmt.Errorf("write: %w", out.err)
	case err != nil:
		return classify(ctx, err)
	case read > m.Size:
		return fmt.Errorf("%w: it has more than %d bytes", ErrChanged, m.Size)
	case read < m.Size:
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrChanged, read, m.Size)
	}
	return nil
}

// timedReader is a body whose every piece has to come within a time.
type timedReader struct {
	from    io.Reader
	timer   *time.Timer // cancels the request
	timeout time.Duration
}

func (s *timedReader) Read(p []byte) (int, error) {
	s.timer.Reset(s.timeout)
	return s.from.Read(p)
}

// errorWriter keeps the error of its writer, which is not the store's.
type errorWriter struct {
	to  io.Writer
	err error
}

func (t *errorWriter) Write(p []byte) (int, error) {
	n, err := t.to.Write(p)
	t.err = err
	return n, err
}
