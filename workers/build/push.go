// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/spokelet/spokelet/workers/registry"
)

// tagLength is how much of the digest of what is built is its tag.
const tagLength = 20

// Registry is where images are written to.
type Registry interface {
	// Base is the image that scripts are added to.
	Base(ctx context.Context) (registry.Base, error)
	// Digest of an account's image with a tag.
	Digest(ctx context.Context, account, tag string) (string, error)
	// Push writes an image of an account.
	Push(ctx context.Context, account, tag string, image remote.Taggable) error
	// Reference of an account's image.
	Reference(account, digest string) string
}

// PushConfig configures the third step.
type PushConfig struct {
	// Input is the file with the JSON of the bundle.Input.
	Input string
	// Work is the folder of the steps.
	Work string
	// Registry takes the image.
	Registry Registry
}

// Push adds the fetched modules to the runtime image, writes the image to the account's repository
// and returns its reference by digest. The same input and runtime make the same image, which
// is not written twice.
func Push(ctx context.Context, config PushConfig) (string, error) {
	in, err := readInput(config.Input)
	if err != nil {
		return "", err
	}
	base, err := config.Registry.Base(ctx)
	if err != nil {
		return "", err
	}
	added := &layerContent{input: in, work: config.Work}
	image, err := buildImage(base, added)
	if err != nil {
		return "", fmt.Errorf("make image of account %s: %w", in.Account, err)
	}
	hash, err := image.Digest()
	if err != nil {
		return "", fmt.Errorf("make image of account %s: %w", in.Account, err)
	}
	digest, tag := hash.String(), in.Digest()[:tagLength]
	there, err := config.Registry.Digest(ctx, in.Account, tag)
	// Some registries answer 403 for an image that does not exist yet; the push then decides.
	if err != nil && !errors.Is(err, registry.ErrMissing) && !errors.Is(err, registry.ErrDenied) {
		return "", err
	}
	if there != digest {
		err := config.Registry.Push(ctx, in.Account, tag, image)
		if cause := added.firstError(); err != nil && cause != nil {
			return "", fmt.Errorf("make image of account %s: %w", in.Account, cause)
		}
		if err != nil {
			return "", err
		}
	}
	return config.Registry.Reference(in.Account, digest), nil
}
