// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/spokelet/spokelet/hack/clusters"
)

// direct speaks to servers of this machine, of which a proxy knows nothing.
func direct() *http.Transport {
	return &http.Transport{Proxy: nil, DisableKeepAlives: true}
}

// Store is an object store with one bucket.
type Store struct {
	*Server

	Bucket               string
	AccessKey, SecretKey string

	client *minio.Client
}

// What the store reads the keys from that open it.
const (
	storeAccessKey = "ROOT_ACCESS_KEY"
	storeSecretKey = "ROOT_SECRET_KEY"
)

// newStore is one with the keys that open it, and no address yet.
func newStore(accessKey, secretKey string) *Store {
	return &Store{Bucket: "workers", AccessKey: accessKey, SecretKey: secretKey}
}

// StartStore starts one that all clusters of a set reach, with data in a folder that
// exists.
func StartStore(ctx context.Context, set *clusters.Set, dir string) (*Store, error) {
	program, err := set.Program(ctx, "versitygw")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	address, err := freeAddress(ctx, set.Hub().Gateway)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := newStore(rand.Text(), rand.Text())
	s.Server = &Server{
		Address: address, Log: filepath.Join(dir, "store.log"),
		command: Command{Path: program, Env: []string{storeAccessKey + "=" + s.AccessKey, storeSecretKey + "=" + s.SecretKey}},
		args:    []string{address, dir},
	}
	if err := s.Start(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// open makes the client, and the bucket where there is none.
func (s *Store) open(ctx context.Context) error {
	client, err := minio.New(s.Address, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: s.Region(), Transport: direct(),
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.client = client
	there, err := client.BucketExists(ctx, s.Bucket)
	if err == nil && !there {
		err = client.MakeBucket(ctx, s.Bucket, minio.MakeBucketOptions{Region: s.Region()})
	}
	if err != nil {
		return fmt.Errorf("store: bucket: %w", err)
	}
	return nil
}

// Endpoint is the URL of the store.
func (s *Store) Endpoint() string { return "http://" + s.Address }

// Region is what the store calls its own.
func (s *Store) Region() string { return "us-east-1" }

// Put stores an object, in place of one that is there.
func (s *Store) Put(ctx context.Context, key, content string) error {
	_, err := s.client.PutObject(ctx, s.Bucket, key, strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	if err != nil {
		return fmt.Errorf("store: put %s: %w", key, err)
	}
	return nil
}

// Remove removes an object; one that is not there is removed.
func (s *Store) Remove(ctx context.Context, key string) error {
	if err := s.client.RemoveObject(ctx, s.Bucket, key, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("store: remove %s: %w", key, err)
	}
	return nil
}

// Keys are those of all objects below a prefix.
func (s *Store) Keys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	for object := range s.client.ListObjectsIter(ctx, s.Bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, fmt.Errorf("store: list %s: %w", prefix, object.Err)
		}
		keys = append(keys, object.Key)
	}
	return keys, nil
}

// ImageRegistry keeps images. Everybody may read and write them, without TLS.
type ImageRegistry struct{ *Server }

// registryFormat is its configuration: where images are and where it listens. What is
// deleted is gone from the index; its content stays in the folder.
const registryFormat = `version: 0.1
log: {level: error, accesslog: {disabled: false}}
storage:
  filesystem: {rootdirectory: %q}
  delete: {enabled: true}
http: {addr: %q}
`

// registryConfig is its configuration for images in a folder.
func registryConfig(images, address string) []byte {
	return fmt.Appendf(nil, registryFormat, images, address)
}

// usePlainRegistry has the nodes of all clusters read from a registry.
func usePlainRegistry(ctx context.Context, set *clusters.Set, address string) error {
	for _, c := range append(set.Spokes(), set.Hub()) {
		if err := c.UsePlainRegistry(ctx, address); err != nil {
			return fmt.Errorf("registry: %w", err)
		}
	}
	return nil
}

// noTraces has it look for nobody to send its traces to.
const noTraces = "OTEL_TRACES_EXPORTER=none"

// StartRegistry starts one that all clusters of a set reach, with images in a folder that
// exists, and has their nodes read from it.
func StartRegistry(ctx context.Context, set *clusters.Set, dir string) (*ImageRegistry, error) {
	program, err := set.Program(ctx, "registry")
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	address, err := freeAddress(ctx, set.Hub().Gateway)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	config := filepath.Join(dir, "registry.yaml")
	if err := os.WriteFile(config, registryConfig(filepath.Join(dir, "images"), address), 0o600); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if err := usePlainRegistry(ctx, set, address); err != nil {
		return nil, err
	}
	r := &ImageRegistry{&Server{
		Address: address, Log: filepath.Join(dir, "registry.log"),
		command: Command{Path: program, Env: []string{noTraces}}, args: []string{"serve", config},
	}}
	if err := r.Start(ctx); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	return r, nil
}

// Ref is the name of a repository, with a tag or without.
func (r *ImageRegistry) Ref(repository string) string { return r.Address + "/" + repository }

// Push writes the image of an archive to a repository, as in "spokelet-workerd:v1", and
// returns the image's name there.
func (r *ImageRegistry) Push(ctx context.Context, img Image, repository string) (string, error) {
	ref, err := name.ParseReference(r.Ref(repository), name.Insecure)
	if err != nil {
		return "", fmt.Errorf("registry: %w", err)
	}
	content, err := tarball.ImageFromPath(img.Archive, nil)
	if err != nil {
		return "", fmt.Errorf("registry: %s: %w", img.Archive, err)
	}
	if err := remote.Write(ref, content, remote.WithContext(ctx), remote.WithTransport(direct())); err != nil {
		return "", fmt.Errorf("registry: push %s: %w", repository, err)
	}
	return ref.Name(), nil
}

// Tags are those of a repository; none if there is no such repository.
func (r *ImageRegistry) Tags(ctx context.Context, repository string) ([]string, error) {
	repo, err := name.NewRepository(r.Ref(repository), name.Insecure)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	tags, err := remote.List(repo, remote.WithContext(ctx), remote.WithTransport(direct()))
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry: list %s: %w", repository, err)
	}
	return tags, nil
}

// Delete deletes an image by its name with a digest.
func (r *ImageRegistry) Delete(ctx context.Context, image string) error {
	digest, err := name.NewDigest(image, name.Insecure)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	if err := remote.Delete(digest, remote.WithContext(ctx), remote.WithTransport(direct())); err != nil {
		return fmt.Errorf("registry: delete %s: %w", image, err)
	}
	return nil
}

// Has tells whether there is an image of a name with a tag or digest.
func (r *ImageRegistry) Has(ctx context.Context, image string) (bool, error) {
	ref, err := name.ParseReference(image, name.Insecure)
	if err != nil {
		return false, fmt.Errorf("registry: %w", err)
	}
	_, err = remote.Head(ref, remote.WithContext(ctx), remote.WithTransport(direct()))
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("registry: look at %s: %w", image, err)
	}
	return true, nil
}

// missing tells whether a registry has answered that it has no such thing.
func missing(err error) bool {
	answer, ok := errors.AsType[*transport.Error](err)
	return ok && answer.StatusCode == http.StatusNotFound
}
