#!/bin/sh
# Builds the image for all platforms into an OCI archive, by docker with buildx or by
# buildah, whichever is there. All times in it are SOURCE_DATE_EPOCH.
set -eu
: "${IMAGE:?}" "${VERSION:?}" "${COMMIT?}" "${PLATFORMS:?}" "${SOURCE_DATE_EPOCH:?}"
out=dist/lbd-image.tar
mkdir -p dist
if docker buildx version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
	export SOURCE_DATE_EPOCH
	docker buildx build --platform "$PLATFORMS" --build-arg "VERSION=$VERSION" --build-arg "COMMIT=$COMMIT" --provenance=false \
		--tag "$IMAGE" --output "type=oci,dest=$out,rewrite-timestamp=true" .
elif command -v buildah >/dev/null; then
	buildah manifest rm "$IMAGE" >/dev/null 2>&1 || true
	case $(uname -m) in x86_64) here=amd64 ;; aarch64) here=arm64 ;; *) here=$(uname -m) ;; esac
	# buildah 1.28, which Debian 12 has, does not know what the Dockerfile calls BUILDPLATFORM.
	buildah build --platform "$PLATFORMS" --build-arg "BUILDPLATFORM=linux/$here" --build-arg "VERSION=$VERSION" --build-arg "COMMIT=$COMMIT" --timestamp "$SOURCE_DATE_EPOCH" \
		--manifest "$IMAGE" .
	buildah manifest push --all "$IMAGE" "oci-archive:$out:$IMAGE"
else
	echo "the image needs docker with buildx and a running daemon, or buildah; neither is here" >&2
	exit 1
fi
echo "$IMAGE is in $out; to publish it: skopeo copy --all oci-archive:$out docker://$IMAGE"
