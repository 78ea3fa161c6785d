// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/spokelet/spokelet/workers/httpclient"
)

const (
	userAgent = "spokelet-workers"
	// parallelUploads is how many layers are sent at a time: each needs memory.
	parallelUploads = 2
	// maxAttempts of a request.
	maxAttempts = 3
)

// Registry is a folder of repositories. Its methods may be called concurrently.
type Registry struct {
	config    Config
	keys      keychain
	transport *http.Transport
}

// New returns a Registry. It sends no request.
func New(config Config) (*Registry, error) {
	config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	keys, err := parseKeychain(config.DockerConfig)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	transport, err := httpclient.NewTransport(config.CA, answerTimeout, maxConnections)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	return &Registry{config: config, keys: keys, transport: transport}, nil
}

// Close closes connections that are not in use.
func (r *Registry) Close() { r.transport.CloseIdleConnections() }

func (r *Registry) options(ctx context.Context) []remote.Option {
	var way http.RoundTripper = r.transport
	if !r.config.Insecure {
		way = tlsOnly{next: way}
	}
	backoff := remote.Backoff{Duration: r.config.Backoff, Factor: 2, Jitter: 0.1, Steps: maxAttempts}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(way), remote.WithAuthFromKeychain(r.keys),
		remote.WithUserAgent(userAgent), remote.WithJobs(parallelUploads), remote.WithRetryBackoff(backoff),
	}
}

// Reference returns the reference of an account's image by its digest.
func (r *Registry) Reference(account, digest string) string {
	return r.config.Push + "/" + account + "@" + digest
}

// Digest is that of an account's image with a tag.
func (r *Registry) Digest(ctx context.Context, account, tag string) (string, error) {
	repository, err := r.config.repository(account)
	if err != nil {
		return "", err
	}
	digest, err := r.getDigest(ctx, repository.Tag(tag))
	if err != nil {
		return "", fmt.Errorf("image %s:%s: %w", account, tag, err)
	}
	return digest, nil
}

// Exists reports whether an account has an image with a digest.
func (r *Registry) Exists(ctx context.Context, account, digest string) (bool, error) {
	repository, err := r.config.repository(account)
	if err != nil {
		return false, err
	}
	if _, err := v1.NewHash(digest); err != nil {
		return false, fmt.Errorf("image %s@%s: %w", account, digest, err)
	}
	_, err = r.getDigest(ctx, repository.Digest(digest))
	if errors.Is(err, ErrMissing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("image %s@%s: %w", account, digest, err)
	}
	return true, nil
}

func (r *Registry) getDigest(ctx context.Context, reference name.Reference) (string, error) {
	within, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	descriptor, err := remote.Head(reference, r.options(within)...)
	if err != nil {
		return "", classify(ctx, err)
	}
	return descriptor.Digest.String(), nil
}

// Push writes an image, or an index of images, to the repository of an account and gives it
// a tag. Layers that the registry has are not sent.
func (r *Registry) Push(ctx context.Context, account, tag string, image remote.Taggable) error {
	repository, err := r.config.repository(account)
	if err != nil {
		return err
	}
	if err := remote.Push(repository.Tag(tag), image, r.options(ctx)...); err != nil {
		err = classify(ctx, err)
		if errors.Is(err, ErrMissing) { // a repository that has to be made by hand
			err = fmt.Errorf("%w: there is no such repository", ErrDenied)
		}
		return fmt.Errorf("push image %s:%s: %w", account, tag, err)
	}
	return nil
}

// Delete deletes an image of an account, and all its tags. It may not exist.
func (r *Registry) Delete(ctx context.Context, account, digest string) error {
	repository, err := r.config.repository(account)
	if err != nil {
		return err
	}
	// What is no digest might be a tag, or a path.
	if _, err := v1.NewHash(digest); err != nil {
		return fmt.Errorf("delete image %s@%s: %w", account, digest, err)
	}
	within, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	if err := remote.Delete(repository.Digest(digest), r.options(within)...); err != nil {
		err = classify(ctx, err)
		if errors.Is(err, ErrMissing) {
			return nil
		}
		return fmt.Errorf("delete image %s@%s: %w", account, digest, err)
	}
	return nil
}

// Base is the image that scripts are added to.
type Base struct {
	// Images are those of an index, one for each platform, in its order; or a single one.
	Images []v1.Image
	// Index: the runtime is an index of images.
	Index bool
}

// Base gets the runtime image. Its layers are read when they are needed, with the same context.
func (r *Registry) Base(ctx context.Context) (Base, error) {
	reference, err := r.config.runtime()
	if err != nil {
		return Base{}, err
	}
	base, err := r.getBase(ctx, reference)
	if err != nil {
		return Base{}, fmt.Errorf("runtime image %s: %w", r.config.Runtime, err)
	}
	return base, nil
}

func (r *Registry) getBase(ctx context.Context, reference name.Reference) (Base, error) {
	descriptor, err := remote.Get(reference, r.options(ctx)...)
	if err != nil {
		return Base{}, classify(ctx, err)
	}
	if !descriptor.MediaType.IsIndex() {
		image, err := descriptor.Image()
		if err != nil {
			return Base{}, classify(ctx, err)
		}
		return Base{Images: []v1.Image{image}}, nil
	}
	index, err := descriptor.ImageIndex()
	if err != nil {
		return Base{}, classify(ctx, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return Base{}, classify(ctx, err)
	}
	base := Base{Index: true}
	for _, entry := range manifest.Manifests {
		// What else there is are statements about the images.
		if !entry.MediaType.IsImage() || entry.Platform != nil && entry.Platform.OS != "linux" {
			continue
		}
		image, err := index.Image(entry.Digest)
		if err != nil {
			return Base{}, classify(ctx, err)
		}
		base.Images = append(base.Images, image)
	}
	if len(base.Images) == 0 {
		return Base{}, fmt.Errorf("%w: its index names none for Linux", ErrMissing)
	}
	return base, nil
}
