// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/spokelet/spokelet/agent/helm/message"
)

const (
	maxManifest = 1 << 20
	maxTags     = 10_000
)

var (
	errNotChart = errors.New("the artefact is no chart")
	errTags     = errors.New("the repository has too many tags: name a version")
)

// fetchFromRegistry reads the archive of an artifact from a registry (HIP-0006).
func (s *Source) fetchFromRegistry(ctx context.Context, u *url.URL, c message.Chart) ([]byte, error) {
	repository, reference, err := s.resolveReference(ctx, u, c)
	if err != nil {
		return nil, err
	}
	_, raw, err := oras.FetchBytes(ctx, repository, reference, oras.FetchBytesOptions{MaxBytes: maxManifest})
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", reference, err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", reference, errNotChart)
	}
	for _, layer := range manifest.Layers {
		if layer.MediaType != helmregistry.ChartLayerMediaType && layer.MediaType != helmregistry.LegacyChartLayerMediaType {
			continue
		}
		if layer.Size > maxArchive {
			return nil, fmt.Errorf("archive of %d MiB is %w: the limit is %d MiB", layer.Size>>20, ErrTooLarge, maxArchive>>20)
		}
		return content.FetchAll(ctx, repository.Blobs(), layer) // and compares size and digest
	}
	return nil, errNotChart
}

// resolveReference returns the repository of an artifact, and the reference of its manifest: a
// digest, a tag, or the tag of the version.
func (s *Source) resolveReference(ctx context.Context, u *url.URL, c message.Chart) (*remote.Repository, string, error) {
	name, digest, _ := strings.Cut(strings.Trim(u.Path, "/"), "@")
	name, tag, _ := strings.Cut(name, ":")
	if c.Name != "" {
		name += "/" + c.Name
	}
	ref := registry.Reference{Registry: u.Host, Repository: name, Reference: cmp.Or(digest, tag)}
	repository, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrURL, err)
	}
	repository.Client = &auth.Client{Client: s.client}
	switch {
	case digest != "":
		return repository, digest, ref.ValidateReferenceAsDigest()
	case tag != "":
		return repository, versionTag(tag), nil
	}
	version, err := resolveTag(ctx, repository, c.Version)
	return repository, version, err
}

// resolveTag returns the tag of a version, or of the latest one in a range or at all.
func resolveTag(ctx context.Context, repository *remote.Repository, version string) (string, error) {
	if _, err := semver.StrictNewVersion(version); err == nil {
		return versionTag(version), nil
	}
	var tags []string
	err := repository.Tags(ctx, "", func(page []string) error {
		for _, tag := range page {
			tags = append(tags, strings.ReplaceAll(tag, "_", "+"))
		}
		if len(tags) > maxTags {
			return errTags
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("tags: %w", err)
	}
	slices.SortFunc(tags, compareVersions)
	tag, err := helmregistry.GetTagMatchingVersionOrConstraint(tags, version)
	if err != nil {
		return "", fmt.Errorf("version %q is not in the registry", version)
	}
	return versionTag(tag), nil
}

// compareVersions sorts the latest first, and invalid versions last.
func compareVersions(a, b string) int {
	left, leftErr := semver.NewVersion(a)
	right, rightErr := semver.NewVersion(b)
	switch {
	case leftErr != nil && rightErr != nil:
		return cmp.Compare(a, b)
	case leftErr != nil:
		return 1
	case rightErr != nil:
		return -1
	default:
		return right.Compare(left)
	}
}

// versionTag returns a version as the tag of an artifact, which cannot have a plus.
func versionTag(version string) string { return strings.ReplaceAll(version, "+", "_") }
