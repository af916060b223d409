package otellocker

const Version = version
