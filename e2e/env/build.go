// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

// Build is what the installation is made of.
type Build struct {
	// Root is the top of the checkout.
	Root string
	// Version is linked into the binaries and tags the images.
	Version string
	// Race builds the binaries with the race detector, for tests.
	Race bool

	// released builds are those of [Build.Released].
	released bool
	// images are those that this process has built; nil builds one each time it is asked for.
	images *images
}

// Released is the build of the version that "make build" builds, without the race detector. It
// has the same files below bin, so that what make has linked is not linked again.
func (b Build) Released(ctx context.Context) Build {
	b.Race, b.released = false, true
	if b.Version = os.Getenv("VERSION"); b.Version != "" {
		return b
	}
	git := Command{Path: "git", Dir: b.Root}
	described, err := git.Run(ctx, "describe", "--tags", "--always", "--dirty")
	if b.Version = strings.TrimSpace(described); err != nil {
		b.Version = "unknown" // as the Makefile does
	}
	return b
}

// Image names an image and the archive that holds it.
type Image struct {
	Ref     string
	Archive string
}

const registry = "ghcr.io/spokelet/"

// helmBinary is the command that the agent runs beside itself. It has a module of its own.
const helmBinary = "spokelet-helm"

// Binary builds one command of the product and returns its path. The go
// command's own cache makes a repetition cheap.
func (b Build) Binary(ctx context.Context, name string) (string, error) {
	if name == helmBinary {
		// It has a module of its own, and no flavour: what is limited in it is memory, of which
		// the race detector takes a multiple.
		return b.link(ctx, "helm", "CGO_ENABLED=0", name, "-ldflags=-s -w", "./cmd/"+name)
	}
	flags := "-ldflags=-s -w -X github.com/spokelet/spokelet/internal/command.Version=" + b.Version
	switch {
	case b.Race:
		// The race runtime is C; linked statically, it needs no base image.
		return b.link(ctx, "", "CGO_ENABLED=1", filepath.Join(b.flavour(), name), "-race", flags+" -linkmode external -extldflags -static", "./cmd/"+name)
	case b.released:
		return b.link(ctx, "", "CGO_ENABLED=0", name, flags, "./cmd/"+name)
	default:
		return b.link(ctx, "", "CGO_ENABLED=0", filepath.Join(b.flavour(), name), flags, "./cmd/"+name)
	}
}

// Tool builds a command of the tests' own, e2e/cmd/<name>, statically, and returns
// its path.
func (b Build) Tool(ctx context.Context, name string) (string, error) {
	return b.link(ctx, "e2e", "CGO_ENABLED=0", name, "./cmd/"+name)
}

// Example builds the program of examples/<name>, statically, and returns its path.
func (b Build) Example(ctx context.Context, name string) (string, error) {
	return b.link(ctx, filepath.Join("examples", name), "CGO_ENABLED=0", name, ".")
}

// link builds a command of the module in a folder into a file below bin, and returns its path.
// Processes that build the same file wait for each other: the later ones find it up to date.
func (b Build) link(ctx context.Context, module, cgo, out string, args ...string) (string, error) {
	out = filepath.Join(b.Root, "bin", out)
	release, err := hold(out)
	if err != nil {
		return "", err
	}
	defer release()
	goTool := Command{Path: "go", Env: []string{cgo}, Dir: filepath.Join(b.Root, module)}
	_, err = goTool.Run(ctx, append([]string{"build", "-trimpath", "-o", out}, args...)...)
	return out, err
}

// Image builds the image of one command of the product and returns where it is.
func (b Build) Image(ctx context.Context, name string) (Image, error) {
	return b.images.once(name+":"+b.Tag(), func() (Image, error) { return b.productImage(ctx, name) })
}

func (b Build) productImage(ctx context.Context, name string) (Image, error) {
	binary, err := b.Binary(ctx, name)
	if err != nil {
		return Image{}, err
	}
	files := []image.File{{Path: "/" + name, Source: binary, Mode: 0o755}}
	if name == "spokelet-agent" {
		beside, err := b.Binary(ctx, helmBinary)
		if err != nil {
			return Image{}, err
		}
		files = append(files, image.File{Path: "/" + helmBinary, Source: beside, Mode: 0o755})
	}
	return b.image(name, files)
}

// ToolImage builds the image of a command of the tests' own and returns where it is.
func (b Build) ToolImage(ctx context.Context, name string) (Image, error) {
	binary, err := b.Tool(ctx, name)
	if err != nil {
		return Image{}, err
	}
	return b.image(name, []image.File{{Path: "/" + name, Source: binary, Mode: 0o755}})
}

// image writes the archive of an image that holds some files and runs the one of its name.
func (b Build) image(name string, files []image.File) (Image, error) {
	return b.write(name, []string{"/" + name}, files)
}

// write writes the archive of an image.
func (b Build) write(name string, entrypoint []string, files []image.File) (Image, error) {
	dir := filepath.Join(b.Root, "bin", "images", b.flavour())
	img := Image{Ref: registry + name + ":" + b.Tag(), Archive: filepath.Join(dir, name+".tar")}
	spec := image.Spec{
		Ref:        img.Ref,
		Files:      files,
		Entrypoint: entrypoint,
		User:       "65532:65532",
	}
	if err := writeImage(img.Archive, spec); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", name, err)
	}
	return img, nil
}

// Tag is the tag of the images.
func (b Build) Tag() string {
	if b.Race {
		return b.Version + "-race"
	}
	return b.Version
}

func (b Build) flavour() string {
	if b.Race {
		return "race"
	}
	return "plain"
}
