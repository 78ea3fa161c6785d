// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/spokelet/spokelet/workers/registry"
)

const (
	user      = "65532:65532"
	createdBy = "spokelet-workers"
)

// epoch is the time of all files: the same content is the same image.
var epoch = time.Unix(0, 0).UTC()

// taggableImage is an image or an index.
type taggableImage interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// buildImage adds the layer to each image of a base.
func buildImage(base registry.Base, c *layerContent) (taggableImage, error) {
	var adds []mutate.IndexAddendum
	for _, image := range base.Images {
		made, err := addLayer(image, c)
		if err != nil {
			return nil, err
		}
		if !base.Index {
			return made, nil
		}
		file, err := made.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("configuration of the image: %w", err)
		}
		adds = append(adds, mutate.IndexAddendum{Add: made, Descriptor: v1.Descriptor{Platform: file.Platform()}})
	}
	if len(adds) == 0 {
		return nil, fmt.Errorf("the runtime: %w", registry.ErrMissing)
	}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), adds...), nil
}

// addLayer adds the layer to one image and sets workerd as its entrypoint. The other layers are
// not read.
func addLayer(base v1.Image, c *layerContent) (v1.Image, error) {
	media, err := base.MediaType()
	if err != nil {
		return nil, fmt.Errorf("the runtime: %w", err)
	}
	kind := types.DockerLayer
	if media == types.OCIManifestSchema1 {
		kind = types.OCILayer
	}
	layer, err := c.layer(kind)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: kind, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: createdBy},
	})
	if err != nil {
		return nil, fmt.Errorf("add a layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("the runtime: %w", err)
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: epoch}
	file.Config.User = user
	file.Config.Entrypoint = []string{defaultWorkerd, "serve", "/" + folder + "/" + configName}
	file.Config.Cmd = nil
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		return nil, fmt.Errorf("configuration of the image: %w", err)
	}
	return image, nil
}
