"""python -m colme"""

from colme.cli import main

if __name__ == "__main__":
    main()
